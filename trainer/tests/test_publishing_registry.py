"""The publication in an image registry: one digest for the same files, the tag last, repeated, killed and rejected."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from registry_proxy import USER, Login, RegistryProxy, registry_proxy

from release.programs import CRANE, obtain_program
from rlt_e2e.oci_registry import oci_registry
from rlt_trainer.publishing import registry as module
from rlt_trainer.publishing.image import LARGE_BYTES, build_image, group_files
from rlt_trainer.publishing.place import PublishError
from rlt_trainer.publishing.registry import ImageRepository, find_credentials

FIELD = "spec.publish[0].registry"
SECRET = "the Secret spec.publish[0].secretName"
FILES = {
    "README.md": b"# A model\n",
    "adapter/adapter_model.safetensors": b"\2" * 1000,
    "config.json": b"{}",
    "model-00001-of-00002.safetensors": bytes(range(256)) * 4096,
    "model-00002-of-00002.safetensors": b"\1" * 2**20,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with oci_registry(obtain_program(CRANE), tmp_path_factory.mktemp("registry") / "blobs") as address:
        yield address


@pytest.fixture
def registry(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[RegistryProxy]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "WAITS_S", (0.0, 0.0))
    monkeypatch.setattr("rlt_trainer.publishing.image.LARGE_BYTES", 2**19)
    with registry_proxy(server) as proxy:
        yield proxy


@pytest.fixture
def export(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A model whose blobs no other test has."""
    return write(tmp_path / "export", {**FILES, "README.md": f"# {request.node.name}\n".encode()})


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def docker_config(host: str, user: str = USER) -> str:
    name, _, password = user.partition(":")
    return json.dumps({"auths": {host: {"username": name, "password": password}}})


def place(registry: RegistryProxy, tag: str = "", *, user: str = USER) -> ImageRepository:
    return ImageRepository(f"oci://{registry.address}/lab/math{tag}", FIELD, docker_config(registry.address, user))


def crane(*arguments: str) -> bytes:
    environment = {**os.environ, "no_proxy": "127.0.0.1"}
    command = [str(obtain_program(CRANE)), *arguments]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read_image(reference: str) -> dict[str, bytes]:
    """The files of the file system that a container with the image has."""
    with tarfile.open(fileobj=io.BytesIO(crane("export", reference, "-"))) as archive:
        found = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
        return {name: file.read() for name, file in found.items() if file}


@pytest.mark.slow
@pytest.mark.parametrize("login", ["none", "basic", "bearer"])
def test_the_file_system_of_the_image_is_the_model(registry: RegistryProxy, export: Path, login: Login) -> None:
    registry.login = login
    to = place(registry, f":{login}")
    to.check()
    digest = to.publish(export)
    name = f"{registry.server}/lab/math"
    assert crane("digest", f"{name}:{login}").decode().strip() == digest
    crane("validate", "--fast", "--remote", f"{name}@{digest}")  # without it, all layers must be compressed
    assert read_image(f"{name}@{digest}") == {
        path.relative_to(export).as_posix(): path.read_bytes() for path in files(export)
    }
    assert registry.requests[-1] == ("PUT", f"/v2/lab/math/manifests/{login}")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_the_same_files_are_not_published_twice(registry: RegistryProxy, export: Path, tmp_path: Path) -> None:
    digest = place(registry).publish(export)
    registry.requests.clear()
    copy = shutil.copytree(export, tmp_path / "copy", copy_function=shutil.copyfile)  # with other times
    assert place(registry).publish(copy) == digest
    assert [method for method, _ in registry.requests] == ["HEAD"]
    (copy / "model-00001-of-00002.safetensors").write_bytes(b"\3" * 2**20)
    registry.requests.clear()
    assert place(registry).publish(copy) != digest
    assert registry.count("PATCH", "/uploads/") == 2, "the registry has the layer of the other weights"


@pytest.mark.slow
@pytest.mark.parametrize("status", [503, 429, -1])
@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("HEAD", "/manifests/"),
        ("POST", "/uploads/"),
        ("PATCH", "/uploads/"),
        ("PUT", "/uploads/"),
        ("PUT", "/manifests/"),
    ],
)
def test_a_request_that_fails_is_repeated(
    registry: RegistryProxy, export: Path, method: str, part: str, status: int
) -> None:
    failed: list[str] = []

    def fail_once(given: str, path: str) -> int:
        if given == method and part in path and not failed:
            failed.append(path)
            return status
        return 0

    registry.fail = fail_once
    digest = place(registry, ":repeated").publish(export)
    assert failed
    assert crane("digest", f"{registry.server}/lab/math:repeated").decode().strip() == digest


KILLED = """
import os, signal, sys
from pathlib import Path
from rlt_trainer.publishing import image
from rlt_trainer.publishing.registry import ImageRepository
from rlt_trainer.publishing.registry_client import RegistryClient

image.LARGE_BYTES = 2**19
folder, url, config, left = sys.argv[1:]
left = int(left)
send = RegistryClient.send

def counted(self, method, path, *arguments, **options):
    global left
    answer = send(self, method, path, *arguments, **options)
    if method == "PUT":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return answer

RegistryClient.send = counted
ImageRepository(url, "spec.publish[0].registry", config).publish(Path(folder))
"""


@pytest.mark.slow
@pytest.mark.parametrize("blobs", [1, 2, 4])
def test_a_killed_publication_has_no_tag_and_continues(registry: RegistryProxy, export: Path, blobs: int) -> None:
    """Killed after some blobs. 4: between the last one and the tag."""
    earlier = place(registry, ":killed").publish(write(export.parent / "earlier", {"config.json": b"{}"}))
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (export / name).write_bytes(f"{name} {blobs}".encode() * 2**16)
    url = f"oci://{registry.address}/lab/math:killed"
    arguments = [str(export), url, docker_config(registry.address), str(blobs)]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=os.environ, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert crane("digest", f"{registry.server}/lab/math:killed").decode().strip() == earlier
    registry.requests.clear()
    digest = place(registry, ":killed").publish(export)
    assert crane("digest", f"{registry.server}/lab/math:killed").decode().strip() == digest
    assert registry.count("PATCH", "/uploads/") == 4 - blobs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("login", "user", "problem"),
    [
        ("basic", "writer:wrong-password", "its credentials are not accepted (status 401 UNAUTHORIZED authentication"),
        ("bearer", "writer:wrong-password", "/token issues no token (status 401)"),
        ("basic", "", "it needs a user and password, which .dockerconfigjson lacks for 127.0.0.1"),
    ],
)
def test_wrong_credentials_are_found_before_the_training(
    registry: RegistryProxy, login: Login, user: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.login = login
    to = place(registry, user=user) if user else ImageRepository(f"oci://{registry.address}/lab/math", FIELD, None)
    with pytest.raises(PublishError) as caught:
        to.check()
    message = str(caught.value)
    assert message.startswith(f"{FIELD}: oci://{registry.address}/lab/math: ")
    assert problem in message
    assert message.endswith(f"; correct {SECRET}.")
    assert "wrong-password" not in message + caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "problem", "fix"),
    [
        (403, "its credentials cannot push (status 403)", f"give the right to push to {SECRET}."),
        (
            404,
            "it does not accept images (status 404)",
            "use the host of an OCI registry, and a repository that exists",
        ),
        (200, "it does not accept images (status 200)", "use the host of an OCI registry"),
        (413, "status 413", "raise the limit of the registry"),
        (503, "status 503", "try again later"),
        (-1, "", "verify that the pods can reach it"),
    ],
)
def test_another_server_is_found_before_the_training(
    registry: RegistryProxy, status: int, problem: str, fix: str
) -> None:
    registry.fail = lambda method, path: status
    with pytest.raises(PublishError) as caught:
        place(registry).check()
    assert f"{FIELD}: oci://{registry.address}/lab/math: {problem}" in str(caught.value)
    assert f"; {fix}" in str(caught.value)
    assert len(registry.requests) == (3 if status in (503, -1) else 1)


def test_credentials_are_those_of_the_longest_name() -> None:
    auths = {"https://ghcr.io/": {"auth": "YTpi"}, "ghcr.io/lab": {"username": "c", "password": "d:e"}}
    config = json.dumps({"auths": auths})
    assert find_credentials(config, "ghcr.io/other/math") == "a:b"
    assert find_credentials(config, "ghcr.io/lab/math") == "c:d:e"
    assert find_credentials(config, "ghcr.io/laboratory/math") == "a:b"
    for damaged in (
        "",
        "[]",
        "{}",
        '{"auths": []}',
        '{"auths": {"ghcr.io": {"auth": "?"}}}',
        '{"auths": {"ghcr.io": 1}}',
    ):
        assert find_credentials(damaged, "ghcr.io/lab/math") is None


def test_each_large_file_has_its_own_layer_until_there_are_too_many() -> None:
    sizes = {"b": LARGE_BYTES + 1, "c": 10, "d": LARGE_BYTES + 1, "a": 0}
    assert group_files(sizes) == [("b",), ("d",), ("c", "a")]
    many = {f"{number:03}": LARGE_BYTES + 1 for number in range(163)} | {"config.json": 2}
    groups = group_files(many)
    assert len(groups) == 83
    assert [name for group in groups for name in group] == list(many)


def test_the_digest_depends_on_names_and_contents_alone(tmp_path: Path) -> None:
    first = build_image(write(tmp_path / "first", FILES))
    second = write(tmp_path / "second", dict(reversed(FILES.items())))
    os.utime(second / "config.json", (0, 0))
    (second / "config.json").chmod(0o600)
    assert build_image(second).digest == first.digest
    (second / "config.json").rename(second / "config.yaml")
    assert build_image(second).digest != first.digest
