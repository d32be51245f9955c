"""Runs in a bucket of a real S3 server: kills, failed requests, invalid keys, and other numbers of ranks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bucket_ranks import Place, load_latest, save_steps
from bucket_servers import bucket_server
from ranks import run_ranks
from s3_proxy import Request, s3_proxy
from test_checkpoint_kill import metrics, read_until_step

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.spec.training_config import RunBucket, TrainingConfig
from rlt_e2e.cluster.s3_server import SECRET_KEY
from rlt_pod.download.bucket import Location, Server
from rlt_pod.download.objects import download_objects
from rlt_pod.download.signature import Keys
from rlt_pod.preflight.facts.bucket import measure_bucket
from rlt_trainer.__main__ import TERMINATED
from rlt_trainer.bucket import leftovers, s3
from rlt_trainer.bucket.check import check_bucket
from rlt_trainer.bucket.folders import upload_numbered
from rlt_trainer.bucket.objects import BucketError
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.lease import LeaseLostError
from rlt_trainer.telemetry.published_results import PublishedResults
from rlt_trainer.telemetry.run_directory import RunDirectory

pytestmark = pytest.mark.slow

MakeConfig = Callable[..., TrainingConfig]
BUCKET = "runs"
MIB = 2**20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bucket_server(tmp_path_factory.mktemp("s3"), BUCKET) as url:
        yield url


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/team/runs/{uuid.uuid4().hex[:8]}"


def find_place(url: str, endpoint: str) -> Place:
    """The ranks have the variables of another parent than this process."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    return Place(url, endpoint, {name: os.environ[name] for name in names})


def open_s3(url: str, server: str) -> S3Objects:
    return S3Objects(RunBucket(url=url, endpoint=server))


def test_objects_are_as_they_were_put(server: str, url: str, tmp_path: Path) -> None:
    objects = open_s3(url, server)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(20 * MIB))  # several parts
    objects.put("a/large", large)
    objects.get("a/large", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == large.read_bytes()
    assert objects.put_if_absent("a/mark", b"1")
    assert objects.put_if_absent("a/mark", b"1"), "its own content, such as after a lost answer"
    assert not objects.put_if_absent("a/mark", b"2")
    assert objects.read("a/mark") == b"1"
    assert objects.read("a/none") is None
    version = objects.find_version("a/mark")
    changed = objects.put_if_same("a/mark", b"3", version)
    assert changed not in (None, version)
    assert changed == objects.find_version("a/mark")
    assert objects.put_if_same("a/mark", b"4", version) is None
    assert objects.put_if_same("a/mark", b"4", None) is None
    assert objects.put_if_same("a/none", b"4", version) is None
    assert objects.find_version("a/none") is None
    assert objects.put_if_same("a/new", large.read_bytes(), None) == objects.find_version("a/new")
    objects.delete(["a/new"])
    assert objects.put_if_same("a/mark", b"1", changed)
    assert objects.list("a/") == {"a/large": 20 * MIB, "a/mark": 1}
    objects.delete(["a/large", "a/none"])
    assert objects.list("").keys() == {"a/mark"}


def test_unfinished_uploads_of_this_run_alone_are_aborted(server: str, url: str) -> None:
    own = open_s3(url, server)
    other = open_s3(f"{url}-other", server)
    for objects in (own, other):
        keys = Keys.find(os.environ, region="us-east-1")
        assert keys
        leftovers._send(keys, "POST", f"{server}/{BUCKET}/{objects._prefix}/a%20file", {"uploads": ""})
    assert own.abort_uploads() == 1
    assert own.abort_uploads() == 0
    assert other.abort_uploads() == 1


def test_a_workload_identity_is_enough(server: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of EKS Pod Identity gives the keys of the bucket."""
    unfinished = open_s3(url, server)
    keys = Keys.find(os.environ, region="us-east-1")
    assert keys
    leftovers._send(keys, "POST", f"{server}/{BUCKET}/{unfinished._prefix}/file", {"uploads": ""})
    token = tmp_path / "token"
    token.write_text("token-of-the-pod")
    with pod_identity_agent(keys, "token-of-the-pod") as agent:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent)
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        objects = open_s3(url, server)
        check_bucket(objects)
        assert objects.abort_uploads() == 1


@contextmanager
def pod_identity_agent(keys: Keys, token: str) -> Iterator[str]:
    """Yield the URL of an agent that gives `keys` to a pod with the token."""
    found = {
        "AccessKeyId": keys.key_id,
        "SecretAccessKey": keys.secret,
        "Token": "",
        "Expiration": "2099-01-01T00:00:00Z",
    }

    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers["Authorization"] == token else 403)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    agent = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    thread = threading.Thread(target=agent.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{agent.server_port}/v1/credentials"
    finally:
        agent.shutdown()
        thread.join()
        agent.server_close()


@pytest.mark.parametrize(
    ("url", "key", "endpoint", "message"),
    [
        ("s3://runs/x", "another", None, "SignatureDoesNotMatch.*spec.storage.secretName"),
        ("s3://missing/x", SECRET_KEY, None, "NoSuchBucket.*Create the bucket"),
        ("s3://runs/x", SECRET_KEY, "http://127.0.0.1:9", "GenericError.*spec.storage.bucket, endpoint"),
    ],
)
def test_an_error_names_cause_and_fix(
    server: str, monkeypatch: pytest.MonkeyPatch, url: str, key: str, endpoint: str | None, message: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key)
    monkeypatch.setattr(s3, "MAX_RETRIES", 0)
    with pytest.raises(BucketError) as caught:
        open_s3(url, endpoint or server).list("")
    assert re.search(message, str(caught.value)), caught.value
    assert str(caught.value).startswith(f"{url}/ could not be listed: ")
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("bucket", "key", "found"),
    [
        (BUCKET, SECRET_KEY, ("None", "")),
        (BUCKET, "another", ("SignatureDoesNotMatch", "Secret spec.storage.secretName")),
        ("missing", SECRET_KEY, ("NoSuchBucket", "correct spec.storage.bucket")),
    ],
)
def test_the_command_of_the_preflight_names_cause_field_and_skew(
    server: str, bucket: str, key: str, found: tuple[str, str]
) -> None:
    command = (sys.executable, "-m", "rlt_trainer", "bucket", "--url", f"s3://{bucket}/x", "--endpoint", server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", key)
        facts = measure_bucket("pod", command)
    assert found[0] in str(facts.problem)
    assert found[1] in facts.fix
    assert facts.skew is not None
    assert abs(facts.skew) < 60
    assert (facts.speed is not None and facts.speed > 0) == (facts.problem is None)
    assert facts.problem or not [name for name in open_s3(f"s3://{bucket}/x", server).list("") if ".check" in name]


def test_failed_requests_are_repeated(server: str, url: str, tmp_path: Path) -> None:
    failed = []

    def fail_some(request: Request) -> bool:
        if request.number % 3:
            return True
        failed.append(request.method)
        return False

    with s3_proxy(server, fail_some) as proxy:
        run_two_ranks(find_place(url, proxy), tmp_path / "saving", range(1, 4))
        assert run_ranks(load_latest, [(find_place(url, proxy), tmp_path / "loading", 0, 1)]) == [(3, True)]
    assert {"PUT", "GET"} <= {*failed}
    assert not [key for key in open_s3(url, server).list("checkpoints/") if "step-1" in key], "maxToKeep is 2"


def test_a_checkpoint_that_cannot_be_uploaded_does_not_end_the_run(server: str, url: str, tmp_path: Path) -> None:
    with s3_proxy(server, lambda request: not re.search("step-2/.*/__1_0", request.key)) as proxy:
        outcomes = run_two_ranks(find_place(url, proxy), tmp_path / "saving", range(1, 4))
    assert [(step, error is None) for step, error in outcomes] == [(1, True), (2, False), (3, True)]
    reason = r"step 2 was not uploaded \(rank 1: .*SlowDown.*the latest checkpoint is step-1"
    assert re.search(reason, outcomes[1][1] or "")
    assert run_ranks(load_latest, [(find_place(url, server), tmp_path / "loading", 0, 1)]) == [(3, True)]


def test_a_program_that_has_started_later_ends_the_saves_of_the_earlier_one(
    server: str, url: str, tmp_path: Path
) -> None:
    """The later one starts while the earlier one uploads step 2: before its marker, or before its first object."""
    bucket = RunBucket(url=url, endpoint=server)
    first = BucketLease.take(bucket, 1, "job-1")
    leases = [first]

    def take(request: Request) -> bool:
        if "step-2/" in request.key and len(leases) == 1:
            leases.append(BucketLease.take(bucket, 1, "job-2"))
        return True

    with s3_proxy(server, take) as proxy:
        place = replace(find_place(url, proxy), lease=first)
        for name in ("during the upload", "before the upload"):
            with pytest.raises(AssertionError, match=r"LeaseLostError.*execution 1.*lost the lease.*execution 2"):
                run_two_ranks(place, tmp_path / name, range(1, 4) if name == "during the upload" else range(2, 4))
    objects = open_s3(url, server)
    marks = [key for key in objects.list("checkpoints/") if key.endswith("/complete")]
    assert marks == ["checkpoints/step-1/complete"]

    later = replace(find_place(url, server), lease=leases[1])
    assert run_two_ranks(later, tmp_path / "later", range(2, 4)) == [(2, None), (3, None)]
    BucketLease.take(bucket, 2, "job-3")
    with pytest.raises(LeaseLostError, match="attempt 2 job-3"):
        BucketLease.take(bucket, 1, "job-4")


@pytest.mark.parametrize("is_first", [False, True])
def test_a_late_put_of_an_earlier_program_changes_no_results_of_the_later_one(
    server: str, url: str, tmp_path: Path, is_first: bool
) -> None:
    """The earlier one had the lease when it sent metrics.jsonl. The put reaches the server after the metrics of the
    later one. `is_first`: before them, but after the later one has read what it continues."""
    bucket = RunBucket(url=url, endpoint=server)
    sent = threading.Event()
    held = threading.Event()
    is_held = False

    def hold(request: Request) -> bool:
        if is_held and request.method == "PUT" and request.key.endswith("/metrics.jsonl"):
            sent.set()
            assert held.wait(timeout=120)
        return True

    with s3_proxy(server, hold) as proxy, ThreadPoolExecutor() as pool:
        lease = BucketLease.take(bucket, 1, "job-1")
        earlier = PublishedResults(open_s3(url, proxy), tmp_path / "earlier", lease)
        run = RunDirectory(tmp_path / "earlier", lease)
        run.append_metrics(1, {"reward": 1.0})
        earlier.upload()
        run.append_metrics(2, {"reward": 2.0})
        is_held = True
        ended = pool.submit(earlier.upload)
        try:
            assert sent.wait(timeout=120)
            lease = BucketLease.take(bucket, 1, "job-2")
            later = PublishedResults(open_s3(url, server), tmp_path / "later", lease)
            later.restore()
            run = RunDirectory(tmp_path / "later", lease)
            run.append_metrics(2, {"reward": 3.0})
            if not is_first:
                later.upload()
        finally:
            held.set()
        if is_first:
            ended.result()
            assert b"2.0" in (open_s3(url, server).read("metrics.jsonl") or b"")
            later.upload()
        else:
            with pytest.raises(LeaseLostError):
                ended.result()
    expected = b'{"step": 1, "reward": 1.0}\n{"step": 2, "reward": 3.0}\n'
    assert open_s3(url, server).read("metrics.jsonl") == expected


def test_a_late_put_of_an_earlier_program_changes_no_export_of_the_later_one(
    server: str, url: str, tmp_path: Path
) -> None:
    """The earlier one had the lease when it sent its weights."""
    bucket = RunBucket(url=url, endpoint=server)
    sent = threading.Event()
    held = threading.Event()

    def hold(request: Request) -> bool:
        if request.method == "PUT" and request.key.endswith("/model.safetensors"):
            sent.set()
            assert held.wait(timeout=120)
        return True

    def write_export(name: str) -> Path:
        run = RunDirectory(tmp_path / name, BucketLease.take(bucket, 1, name))
        run.export.mkdir(parents=True)
        for file in ("config.json", "model.safetensors"):
            (run.export / file).write_text(name)
        return run.export

    with s3_proxy(server, hold) as proxy, ThreadPoolExecutor() as pool:
        ended = pool.submit(upload_numbered, open_s3(url, proxy), write_export("earlier"))
        try:
            assert sent.wait(timeout=120)
            upload_numbered(open_s3(url, server), write_export("later"))
        finally:
            held.set()
        ended.result()
    objects = open_s3(url, server)
    assert {key for key in objects.list("export/") if objects.read(key) == b"later"} == {
        "export/2/config.json",
        "export/2/model.safetensors",
    }


@pytest.mark.parametrize(
    ("held", "is_saved_before"),
    [(".metadata", False), ("__1_0.distcp", False), ("complete", False), ("complete", True), ("delete", True)],
)
def test_a_late_request_of_an_earlier_program_changes_no_checkpoint_of_the_later_one(
    server: str, url: str, tmp_path: Path, held: str, is_saved_before: bool
) -> None:
    """Both save step 2, with other weights. A request of the earlier program, which had the lease when it sent it,
    reaches the server when the later one has written its marker. `is_saved_before`: it has a checkpoint of step 2."""
    bucket = RunBucket(url=url, endpoint=server)
    if is_saved_before:
        assert run_two_ranks(replace(find_place(url, server), seed=2), tmp_path / "first", range(2, 3)) == [(2, None)]
    first = BucketLease.take(bucket, 1, "job-1")
    sent = threading.Event()
    saved = threading.Event()

    def hold(request: Request) -> bool:
        is_put = request.method == "PUT" and "/step-2/" in request.key and request.key.endswith(held)
        is_delete = request.method == "DELETE" or (request.method == "POST" and request.key == f"/{BUCKET}")
        if is_put or (held == "delete" and is_delete):
            sent.set()
            assert saved.wait(timeout=120)
        return True

    with s3_proxy(server, hold) as proxy, ThreadPoolExecutor() as pool:
        earlier = replace(find_place(url, proxy), lease=first, seed=1)
        ended = pool.submit(run_two_ranks, earlier, tmp_path / "earlier", range(2, 3))
        try:
            assert sent.wait(timeout=120)
            later = replace(find_place(url, server), lease=BucketLease.take(bucket, 1, "job-2"))
            assert run_two_ranks(later, tmp_path / "later", range(2, 3)) == [(2, None)]
        finally:
            saved.set()
        is_lost = "LeaseLostError" in str(ended.exception())
    assert run_ranks(load_latest, [(find_place(url, server), tmp_path / "loading", 0, 1)]) == [(2, True)]
    names = [key.rpartition("/")[2] for key in open_s3(url, server).list("checkpoints/step-2/")]
    assert sorted(names) == [".metadata", "__0_0.distcp", "__1_0.distcp", "complete", "driver.json"]
    assert is_lost == (held != "delete"), "the delete follows its marker"


def run_two_ranks(place: Place, folder: Path, steps: range, *, asynchronous: bool = False) -> Any:
    """Save the steps on two ranks. Return the outcomes of rank 0."""
    return run_ranks(save_steps, [(place, folder, steps, asynchronous, rank, 2) for rank in range(2)])[0]


def test_a_run_starts_from_a_downloaded_checkpoint_of_another_one(server: str, url: str, tmp_path: Path) -> None:
    place = find_place(url, server)
    assert run_two_ranks(place, tmp_path / "saving", range(1, 3)) == [(1, None), (2, None)]
    location = Location("spec.checkpoint.resumeFromPath", f"{url}/checkpoints/step-1")
    folder = download_objects(Server(server, place.variables), location, tmp_path / "objects", "checkpoint")
    config = Checkpoint(resume="path", resume_from_path=str(folder))
    other = replace(place, url=f"{url}-other")
    loaded = run_ranks(load_latest, [(other, tmp_path / "loading", rank, 3, config) for rank in range(3)])
    assert loaded == [(1, True)] * 3


@pytest.mark.parametrize("moment", [1, 2, 3, 4, "marker", "after the marker"])
def test_ranks_killed_at_any_upload_leave_the_step_before(
    server: str, url: str, tmp_path: Path, moment: int | str
) -> None:
    """Four files are uploaded for step 3: a file of each rank, DCP's metadata and the driver's state."""
    files: list[str] = []

    def kill(request: Request) -> bool:
        name = request.key.rpartition("/step-3/")[2]
        if "complete" in files or (name == "complete" and request.method == "PUT" and moment == "marker"):
            return end()
        if request.method == "PUT" and name != request.key:
            files.append(name)
            return end() if len(files) == moment else True
        return True

    def end() -> bool:
        for file in (tmp_path / "saving").glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)
        return False

    with s3_proxy(server, kill) as proxy, pytest.raises(AssertionError, match="the process died"):
        run_two_ranks(find_place(url, proxy), tmp_path / "saving", range(1, 6), asynchronous=moment in (2, 4))
    latest = 3 if moment == "after the marker" else 2
    ranks = 1 if moment in (1, 3, "marker") else 3
    loaded = run_ranks(
        load_latest, [(find_place(url, server), tmp_path / "loading", rank, ranks) for rank in range(ranks)]
    )
    assert loaded == [(latest, True)] * ranks

    again = range(latest + 1, latest + 2)
    outcomes = run_ranks(save_steps, [(find_place(url, server), tmp_path / "again", again, False, 0, 1)])[0]
    assert outcomes == [(latest + 1, None)]
    objects = open_s3(url, server)
    names = {key.rpartition("/")[2] for key in objects.list(f"checkpoints/step-{latest + 1}/")}
    assert names == {".metadata", "__0_0.distcp", "complete", "driver.json"}, "nothing of the killed ranks is left"
    assert run_ranks(load_latest, [(find_place(url, server), tmp_path / "last", 0, 1)]) == [(latest + 1, True)]


@pytest.mark.long
def test_a_run_that_loses_its_disk_has_the_results_of_a_run_on_a_volume(
    server: str, url: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    """The program is killed while it uploads step 3, and resumes from step 2."""
    uploading = threading.Event()
    killed = threading.Event()
    restarted = threading.Event()

    def hold(request: Request) -> bool:
        if restarted.is_set() or request.method != "PUT" or "/step-3/" not in request.key:
            return True
        uploading.set()
        killed.wait(timeout=600)
        return False

    changes: dict[str, Any] = {
        "workers": 1,
        "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],  # random weights sometimes earn it
        "training": {"totalSteps": 4, "warmup": {"steps": 2, "batchSize": 8}},
        "algorithm": {"klLossCoef": 0.1},
        "checkpoint": {"saveFreq": 1, "maxToKeep": 1},
    }
    on_volume = make_config(**changes, runDirectory=str(tmp_path / "volume"))
    assert start(on_volume, tmp_path).wait(timeout=600) == 0
    with s3_proxy(server, hold) as proxy:
        in_bucket = make_config(**changes, runDirectory=str(tmp_path / "pod"), bucket={"url": url, "endpoint": proxy})
        process = start(in_bucket, tmp_path)
        try:
            assert uploading.wait(timeout=600)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            killed.set()
        process.communicate()
        (tmp_path / "pod").rename(tmp_path / "lost")  # a worker that has not ended yet may still write there

        restarted.set()
        second = start(in_bucket, tmp_path)
        output = second.communicate(timeout=600)[0]
    assert second.returncode == 0, output
    assert f"resuming from {url}/checkpoints/step-2" in output
    assert f'"exportedPath":"{url}/export/2"' in output
    assert SECRET_KEY not in output

    objects = open_s3(url, server)
    copy = tmp_path / "copy"
    for key in objects.list(""):
        (copy / key).parent.mkdir(parents=True, exist_ok=True)
        objects.get(key, copy / key)
    assert metrics(copy) == metrics(tmp_path / "volume")
    (copy / "export/2").rename(copy / "model")
    (tmp_path / "volume/export").rename(tmp_path / "volume/model")
    for name in ("model/model.safetensors", "model/config.json", "rollouts/step-4.jsonl"):
        assert (copy / name).read_bytes() == (tmp_path / "volume" / name).read_bytes()
    assert sorted(path.name for path in (copy / "checkpoints").iterdir()) == ["step-0", "step-4"]


def test_after_sigterm_the_last_checkpoint_is_in_the_bucket(
    server: str, url: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    """The marker and the metrics of its step are uploaded before the program ends."""
    config = make_config(
        workers=1,
        training={"totalSteps": 1000},
        checkpoint={"saveFreq": 1000},
        runDirectory=str(tmp_path / "pod"),
        bucket={"url": url, "endpoint": server},
    )
    process = start(config, tmp_path)
    read_until_step(process, 2)
    process.terminate()
    output = process.communicate(timeout=120)[0]
    assert process.returncode == TERMINATED, output
    objects = open_s3(url, server)
    objects.get("metrics.jsonl", tmp_path / "metrics.jsonl")
    last = metrics(tmp_path)[-1]["step"]
    assert {key for key in objects.list("checkpoints/") if key.endswith("/complete")} == {
        f"checkpoints/step-{last}/complete"
    }
    assert not list((tmp_path / "pod/staged").glob("*"))


def test_a_trial_reads_its_checkpoint_from_the_bucket_and_leaves_nothing(
    server: str, url: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(
        workers=1,
        training={"totalSteps": 500},
        runDirectory=str(tmp_path / "pod"),
        bucket={"url": url, "endpoint": server},
    )
    file = tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "rlt_trainer", "trial", "--config", str(file), "--report", str(report), "--local"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert f"resuming from {url}/.preflight-" in done.stdout
    assert json.loads(report.read_text())["checkpointBytes"] > 3 * 4 * 10_000, "weights and two moments"
    assert not open_s3(url, server).list("")
    assert not list((tmp_path / "pod").iterdir())


def start(config: TrainingConfig, folder: Path) -> subprocess.Popen[str]:
    """Start `rlt-trainer run --local`."""
    file = folder / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
