"""The step that downloads models and data from a bucket of a real S3 server: killed, shared, and with other faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket_servers import bucket_server
from s3_proxy import Cut, Decision, Fault, Request, s3_proxy

from rlt_api.spec.training_config import RunBucket
from rlt_e2e.cluster.s3_server import SECRET_KEY
from rlt_pod.download import transfer
from rlt_pod.download.bucket import Location, Server
from rlt_pod.download.objects import STATE, download_objects
from rlt_pod.download.transfer import DownloadError
from rlt_pod.preflight.expected import ObjectPath
from rlt_pod.preflight.facts.objects import find_object_problems
from rlt_pod.report.download_report import format_progress
from rlt_trainer.bucket.s3 import S3Objects

pytestmark = pytest.mark.slow

BUCKET = "models"
MIB = 2**20
WEIGHTS = os.urandom(4 * MIB)
MODEL = {"config.json": b"{}", "model.safetensors": WEIGHTS, "sub/tokenizer.json": b"[]", "optimizer.bin": b"unused"}
READ = {name: content for name, content in MODEL.items() if name != "optimizer.bin"}
FIELD = "spec.model.path"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bucket_server(tmp_path_factory.mktemp("s3"), BUCKET) as url:
        yield url


@pytest.fixture
def url(server: str, tmp_path: Path) -> str:
    """A model in the bucket."""
    url = f"s3://{BUCKET}/team/{uuid.uuid4().hex[:8]}"
    put(url, server, MODEL, tmp_path)
    return url


def put(url: str, server: str, objects: dict[str, bytes], scratch: Path) -> None:
    bucket = S3Objects(RunBucket(url=url, endpoint=server))
    for name, content in objects.items():
        file = scratch / uuid.uuid4().hex
        file.write_bytes(content)
        bucket.put(name, file)


def build_command(endpoint: str, root: Path, *paths: str) -> list[str]:
    options = ["--to", str(root), "--endpoint", endpoint, *paths]
    return [sys.executable, "-m", "rlt_pod", "download", *options]


def run(
    endpoint: str, root: Path, url: str, option: str = "--model", field: str = FIELD
) -> subprocess.CompletedProcess[str]:
    command = build_command(endpoint, root, option, f"{field}={url}")
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def find_folder(root: Path, url: str) -> Path:
    return root / url.removeprefix("s3://")


def list_partials(root: Path) -> list[Path]:
    return [file for file in (root / STATE).iterdir() if not file.suffix]


def is_weights(request: Request) -> bool:
    return request.key.endswith("/model.safetensors")


def test_a_model_is_downloaded_once(server: str, url: str, tmp_path: Path) -> None:
    requested = []

    def note(request: Request) -> bool:
        requested.append(request.key)
        return True

    with s3_proxy(server, note) as proxy:
        done = run(proxy, tmp_path / "root", url)
        assert done.returncode == 0, done.stderr
        folder = find_folder(tmp_path / "root", url)
        size = sum(map(len, READ.values()))
        assert done.stdout.splitlines()[-2:] == [format_progress(size, size), str(folder)]
        assert read_files(folder) == READ
        assert not list_partials(tmp_path / "root")
        assert sum(key.endswith("model.safetensors") for key in requested) == 1
        requested.clear()
        assert run(proxy, tmp_path / "root", f"{url}/").returncode == 0
        assert {*requested} == {f"/{BUCKET}"}, "only lists"


def test_files_and_folders_of_data_are_downloaded(server: str, url: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path in (f"{url}/model.safetensors", f"{url}/sub"):
        done = run(server, root, path, "--data", "spec.data.files[0]")
        assert done.returncode == 0, done.stderr
    assert read_files(find_folder(root, url)) == {
        name: READ[name] for name in ("model.safetensors", "sub/tokenizer.json")
    }


def test_a_checkpoint_needs_its_marker(server: str, tmp_path: Path) -> None:
    """The marker is uploaded last. All files are downloaded, also those that a model does not have."""
    url = f"s3://{BUCKET}/runs/{uuid.uuid4().hex[:8]}/checkpoints/step-5"
    files = {"__0_0.distcp": b"shard", ".metadata": b"names", "driver.pt": b"state"}
    put(url, server, files, tmp_path)
    field = "spec.checkpoint.resumeFromPath"
    done = run(server, tmp_path / "root", url, "--checkpoint", field)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {url} has no complete, so that it is not a checkpoint, or not yet complete. Set {field} to the folder "
        "of a checkpoint, after its upload.\n"
    )
    put(url, server, {"complete": b"{}"}, tmp_path)
    done = run(server, tmp_path / "root", url, "--checkpoint", field)
    assert done.returncode == 0, done.stderr
    assert read_files(find_folder(tmp_path / "root", url)) == {**files, "complete": b"{}"}


def test_a_killed_download_continues_its_file(server: str, url: str, tmp_path: Path) -> None:
    """The first connection ends in the middle of the file. The program is killed while it waits for the second one."""
    root = tmp_path / "root"
    ranges: list[str | None] = []
    reached = threading.Event()
    killed = threading.Event()

    def decide(request: Request) -> Decision:
        if not is_weights(request):
            return True
        ranges.append(request.range)
        if len(ranges) == 1:
            return Cut.HALF
        if len(ranges) == 2:
            reached.set()
            killed.wait()
            return Cut.BEFORE
        return True

    with s3_proxy(server, decide) as proxy:
        process = subprocess.Popen(build_command(proxy, root, "--model", f"{FIELD}={url}"))
        assert reached.wait(timeout=60)
        process.kill()
        process.wait()
        killed.set()
        assert not find_folder(root, url).exists(), "no file has its name before all are complete"
        assert sorted(file.stat().st_size for file in list_partials(root))[-1] == 2 * MIB
        done = run(proxy, root, url)
    assert done.returncode == 0, done.stderr
    assert ranges == [None, f"bytes={2 * MIB}-", f"bytes={2 * MIB}-"]
    assert read_files(find_folder(root, url)) == READ


def test_failed_requests_and_lost_connections_are_repeated(server: str, url: str, tmp_path: Path) -> None:
    faults: dict[int, Decision] = {1: False, 2: Cut.BEFORE, 3: Cut.AFTER, 5: Cut.HALF, 7: False}

    with s3_proxy(server, lambda request: faults.get(request.number, True)) as proxy:
        done = run(proxy, tmp_path / "root", url)
    assert done.returncode == 0, done.stderr
    assert read_files(find_folder(tmp_path / "root", url)) == READ


@pytest.mark.parametrize("moment", ["before a file", "in a file", "after a file"])
def test_an_object_that_changes_meanwhile_is_found(server: str, url: str, tmp_path: Path, moment: str) -> None:
    """All files are of the later upload, which has the same sizes."""
    changed = {**READ, "config.json": b"[]", "model.safetensors": WEIGHTS[::-1]}
    trigger = {"before a file": 1, "in a file": 2, "after a file": 1}[moment]
    name = "sub/tokenizer.json" if moment == "after a file" else "model.safetensors"
    counts = [0]

    def decide(request: Request) -> Decision:
        if not request.key.endswith(f"/{name}"):
            return True
        counts[0] += 1
        if counts[0] == trigger:
            put(url, server, changed, tmp_path)
        return Cut.HALF if moment == "in a file" and counts[0] == 1 else True

    with s3_proxy(server, decide) as proxy:
        done = run(proxy, tmp_path / "root", url)
    assert done.returncode == 0, done.stderr
    assert read_files(find_folder(tmp_path / "root", url)) == changed
    assert not list_partials(tmp_path / "root")


def test_objects_that_change_all_the_time_are_an_error(server: str, url: str, tmp_path: Path) -> None:
    def decide(request: Request) -> bool:
        if is_weights(request):
            put(url, server, {"model.safetensors": os.urandom(MIB)}, tmp_path)
        return True

    with s3_proxy(server, decide) as proxy:
        done = run(proxy, tmp_path / "root", url)
    assert done.returncode == 1
    assert done.stderr == f"error: {url}: its objects change while they are downloaded. Start it again after that.\n"
    assert not find_folder(tmp_path / "root", url).exists()


def test_a_later_upload_replaces_and_removes_files(server: str, url: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert run(server, root, url).returncode == 0
    put(url, server, {"config.json": b'{"later": 1}'}, tmp_path)
    S3Objects(RunBucket(url=url, endpoint=server)).delete(["sub/tokenizer.json"])
    assert run(server, root, url).returncode == 0
    assert read_files(find_folder(root, url)) == {"config.json": b'{"later": 1}', "model.safetensors": WEIGHTS}


def test_jobs_that_share_a_volume_download_once(server: str, url: str, tmp_path: Path) -> None:
    requested = []

    def note(request: Request) -> bool:
        requested.append(request.key)
        return True

    with s3_proxy(server, note) as proxy:
        command = build_command(proxy, tmp_path / "root", "--model", f"{FIELD}={url}")
        processes = [subprocess.Popen(command) for _ in range(3)]
        assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert sum(key.endswith("model.safetensors") for key in requested) == 1
    assert read_files(find_folder(tmp_path / "root", url)) == READ


@pytest.mark.parametrize(
    ("url", "variables", "message"),
    [
        ("s3://missing/x", {}, r"s3://missing/x cannot be read: NoSuchBucket: .* Correct spec\.model\.path, or create"),
        (f"s3://{BUCKET}/none", {}, r"has no such objects\. Correct spec\.model\.path, or upload"),
        (f"s3://{BUCKET}/no-model", {}, r"no-model has no config\.json, .* Set spec\.model\.path to the folder"),
        (f"s3://{BUCKET}/no-model", {"AWS_SECRET_ACCESS_KEY": "another"}, "SignatureDoesNotMatch: .*secretName"),
        (f"s3://{BUCKET}/no-model", {"AWS_ACCESS_KEY_ID": "another"}, "XAdminUserNotFound: .*secretName"),
        (f"s3://{BUCKET}/no-model", {"AWS_REGION": "eu-west-3"}, "another region: set AWS_REGION in spec.cluster.env"),
        (
            f"s3://{BUCKET}/no-model",
            {"AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"},
            r"its credentials are missing\. Set spec\.storage\.secretName",
        ),
    ],
)
def test_an_error_names_cause_field_and_fix(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, variables: dict[str, str], message: str
) -> None:
    """The step and the check of the preflight find the same."""
    put(f"s3://{BUCKET}/no-model", server, {"model.safetensors": b"x"}, tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = run(server, tmp_path / "root", url)
    assert done.returncode == 1
    assert re.search(message, done.stderr), done.stderr
    assert SECRET_KEY not in done.stderr
    (problem,) = find_object_problems([ObjectPath(FIELD, url, "model")], server, os.environ)
    assert done.stderr == f"error: {problem.problem} {problem.fix}\n"
    assert problem.is_certain


def test_without_a_server_an_earlier_download_is_used(
    server: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transfer, "wait", lambda failures: None)
    location = Location(FIELD, url)
    absent = Server("http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"does not answer .*spec\.storage\.endpoint"):
        download_objects(absent, location, tmp_path / "root", "model")
    folder = download_objects(Server(server), location, tmp_path / "root", "model")
    assert download_objects(absent, location, tmp_path / "root", "model") == folder
    (problem,) = find_object_problems([ObjectPath(FIELD, url, "model")], "http://127.0.0.1:9", os.environ)
    assert not problem.is_certain


def test_a_key_cannot_leave_the_folder(server: str, url: str, tmp_path: Path) -> None:
    listing = (
        "<ListBucketResult><Contents><Key>x/../../etc/passwd.json</Key><Size>1</Size><ETag>e</ETag></Contents>"
        "</ListBucketResult>"
    )

    class Listing(Fault):
        @property
        def body(self) -> bytes:
            return listing.encode()

    with s3_proxy(server, lambda request: Listing(200, "", "")) as proxy:
        done = run(proxy, tmp_path / "root", f"s3://{BUCKET}/x", "--data", "spec.data.path")
    assert done.returncode == 1
    assert "'x/../../etc/passwd.json' is not a path of a file" in done.stderr


def test_each_node_of_a_cluster_downloads(server: str, url: str, tmp_path: Path) -> None:
    """The second node has an invalid key at first: its error names the pod."""
    from ray.cluster_utils import Cluster

    requested = []

    def note(request: Request) -> bool:
        requested.append(request.key)
        return True

    with s3_proxy(server, note) as proxy:
        command = [*build_command(proxy, tmp_path / "root", "--model", f"{FIELD}={url}"), "--nodes=2"]
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            environment = {**os.environ, "RAY_ADDRESS": cluster.address}
            broken = cluster.add_node(num_cpus=1, env_vars={"AWS_SECRET_ACCESS_KEY": "another"})
            failed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            assert failed.returncode == 1
            assert re.search(r"error: pod \S+: .*SignatureDoesNotMatch.*secretName", failed.stderr), failed.stderr
            cluster.remove_node(broken)
            cluster.add_node(num_cpus=1)
            requested.clear()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            assert requested.count(f"/{BUCKET}") == 4, "each process lists before and after"
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]
    assert read_files(find_folder(tmp_path / "root", url)) == READ
