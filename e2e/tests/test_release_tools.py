"""What a release pushes, signs and packages, with a real registry, cosign and krew."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from release.chart import package_chart
from release.krew import MANIFEST, write_plugin
from release.programs import COSIGN, CRANE, KREW, obtain_program
from release.registry import Registry
from release.signatures import Signer
from release.source import Source
from rlt_e2e.cluster.programs import obtain_helm
from rlt_e2e.cluster.stages import StageError
from rlt_e2e.environment import ROOT
from rlt_e2e.oci_registry import oci_registry
from rlt_e2e.tar_bytes import write_tar

pytestmark = [pytest.mark.slow, pytest.mark.long]

SOURCE = Source("0.1.0", "a" * 40, 1_700_000_000, "https://example.com/owner/rlt", "Notes.\n")
WITHOUT_LOG = "--insecure-ignore-tlog"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """An empty registry on loopback."""
    folder = tmp_path_factory.mktemp("release")
    crane = obtain_program(CRANE)
    with oci_registry(crane, folder / "registry") as address:
        yield Registry(f"{address}/team", crane, obtain_helm(), folder / "release.log")


def write_image(archive: Path, content: bytes) -> Path:
    """Write a Docker archive of one layer with one file."""
    layer = write_tar({"file": content})
    layers = [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": layers}}
    manifest = [{"Config": "config.json", "RepoTags": ["image:latest"], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, "config.json": json.dumps(config).encode()}
    archive.write_bytes(write_tar({**files, "manifest.json": json.dumps(manifest).encode()}))
    return archive


def test_a_tag_is_pushed_once(registry: Registry, tmp_path: Path) -> None:
    image = write_image(tmp_path / "image.tar", b"first")
    pushed = registry.push_image(image, "once", "0.1.0")
    assert registry.push_image(image, "once", "0.1.0") == pushed
    other = write_image(tmp_path / "other.tar", b"second")
    with pytest.raises(StageError, match=r"once:0.1.0 exists with other content.*another version"):
        registry.push_image(other, "once", "0.1.0")
    assert registry.push_image(other, "once", "0.1.1").digest != pushed.digest


def test_a_version_of_the_chart_is_pushed_once(registry: Registry, tmp_path: Path) -> None:
    image = registry.push_image(write_image(tmp_path / "image.tar", b"operator"), "rlt-operator", "0.1.0")
    chart = package_chart(tmp_path, SOURCE, image, registry.helm, registry.log)
    pushed = registry.push_chart(chart, "rlt-operator", "0.1.0")
    assert registry.push_chart(chart, "rlt-operator", "0.1.0") == pushed
    show: list[str | Path] = [
        registry.helm,
        "show",
        "values",
        f"oci://{pushed.repository}",
        "--version",
        "0.1.0",
        "--plain-http",
    ]
    assert image.digest in subprocess.run(show, check=True, capture_output=True, text=True).stdout
    other = package_chart(tmp_path, replace(SOURCE, time=SOURCE.time + 1), image, registry.helm, registry.log)
    with pytest.raises(StageError, match=r"charts/rlt-operator:0.1.0 exists with other content"):
        registry.push_chart(other, "rlt-operator", "0.1.0")


def test_a_registry_that_does_not_respond_is_named(registry: Registry, tmp_path: Path) -> None:
    absent = replace(registry, address="127.0.0.1:1/team")
    with pytest.raises(StageError, match=r"REGISTRY: 127\.0\.0\.1:1/team: .*connection refused"):
        absent.push_image(write_image(tmp_path / "image.tar", b""), "absent", "0.1.0")


def test_a_signature_is_of_the_key_and_the_content(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cosign = obtain_program(COSIGN)
    monkeypatch.setenv("COSIGN_PASSWORD", "secret")
    for name in ("signer", "other"):
        command: list[str | Path] = [cosign, "generate-key-pair", "--output-key-prefix", tmp_path / name]
        subprocess.run(command, check=True, capture_output=True)
    image = registry.push_image(write_image(tmp_path / "image.tar", b"signed"), "signed", "0.1.0")
    signer = Signer(cosign, tmp_path / "signer.key", registry.log)
    signer.sign_image(image)
    file = tmp_path / "SHA256SUMS"
    file.write_text("hashes")
    bundle = signer.sign_file(file)

    def verify(key: str, command: str, *arguments: str | Path) -> int:
        options: list[str | Path] = ["--key", tmp_path / f"{key}.pub", WITHOUT_LOG]
        return subprocess.run([cosign, command, *options, *arguments], capture_output=True).returncode

    assert verify("signer", "verify", image.pinned) == 0
    assert verify("other", "verify", image.pinned) != 0
    assert verify("signer", "verify-blob", "--bundle", bundle, file) == 0
    assert verify("other", "verify-blob", "--bundle", bundle, file) != 0
    file.write_text("other hashes")
    assert verify("signer", "verify-blob", "--bundle", bundle, file) != 0


def test_krew_installs_the_plugin(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    write_plugin(tmp_path, SOURCE, wheel)
    (archive,) = tmp_path.glob("*.tar.gz")
    environment = {**os.environ, "KREW_ROOT": str(tmp_path / "krew")}
    install: list[str | Path] = [
        obtain_program(KREW),
        "install",
        f"--manifest={tmp_path / MANIFEST}",
        f"--archive={archive}",
    ]
    subprocess.run(install, env=environment, check=True, capture_output=True)
    plugin = tmp_path / "krew/bin/kubectl-rlt"
    version = wheel.name.split("-")[1]
    for _ in range(2):  # the second start installs nothing
        done = subprocess.run([plugin, "version"], env=environment, check=True, capture_output=True, text=True)
        assert ["client", version] in [line.split() for line in done.stdout.splitlines()]
    assert done.stderr == ""
