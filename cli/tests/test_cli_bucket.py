"""Commands that read a run in a bucket of a real S3 server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bucket_servers import bucket_server
from click.testing import CliRunner, Result
from s3_proxy import Cut, Decision, Fault, Request, s3_proxy

from rlt.errors import UnavailableError
from rlt.runs import bucket_copy
from rlt.runs.bucket_copy import MAX_BYTES, BucketCopy, limit_size, select_all, select_records
from rlt_api.spec.training_config import RunBucket
from rlt_cli.commands import ui
from rlt_cli.main import cli
from rlt_e2e.cluster.s3_server import SECRET_KEY
from rlt_pod.download import transfer
from rlt_pod.download.bucket import Listed
from rlt_trainer.bucket.s3 import S3Objects
from rlt_ui import server as page

pytestmark = pytest.mark.slow

BUCKET = "runs"
RUNS = f"s3://{BUCKET}/team/runs"
URL = f"{RUNS}/sum-1a2b3c4d"
METRICS = "".join(f'{{"step": {step}, "critic/rewards/mean": {step / 8}}}\n' for step in range(1, 4))
OBJECTS = {
    "config.json": '{"job": "sum", "training": {"totalSteps": 4}}',
    "metrics.jsonl": METRICS,
    **{
        f"rollouts/step-{step}.jsonl": f'{{"prompt": "p{step}", "response": "r", "reward": 1}}\n'
        for step in range(1, 12)
    },
    "checkpoints/step-2/complete": "{}",
    "export/config.json": "{}",
    "executions/1": "1 sum\n",
}


def put(url: str, objects: dict[str, str], server: str, scratch: Path) -> None:
    bucket = S3Objects(RunBucket(url=url, endpoint=server))
    for name, content in objects.items():
        file = scratch / "object"
        file.write_text(content)
        bucket.put(name, file)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(transfer, "wait", lambda failures: None)
    with bucket_server(tmp_path, BUCKET) as url:
        put(URL, OBJECTS, url, tmp_path)
        yield url


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_commands_read_what_they_show(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies are removed when the commands end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    requested: list[str] = []

    def note(request: Request) -> bool:
        requested.append(request.key.removeprefix(f"/{BUCKET}/team/runs/sum-1a2b3c4d/"))
        return True

    def read(*arguments: str) -> tuple[str, list[str]]:
        requested.clear()
        done = rlt(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout, [key for key in requested if key != f"/{BUCKET}"]

    records = ["config.json", "metrics.jsonl", "rollouts/step-11.jsonl"]
    with s3_proxy(server, note) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy)
        found, keys = read("metrics", URL, "-o", "json")
        assert json.loads(found) == [json.loads(line) for line in METRICS.splitlines()]
        assert sorted(keys) == records
        found, keys = read("rollouts", f"{URL}/", "--step", "3", "-o", "json")
        assert [each["prompt"] for each in json.loads(found)] == ["p3"]
        assert keys == ["rollouts/step-3.jsonl"]
        found, keys = read("report", URL, "--markdown")
        assert found.startswith("## sum\n\n**Incomplete**: 3 of 4 steps are recorded.\n")
        assert sorted(keys) == records
        monkeypatch.chdir(tmp_path)
        found, _ = read("report", URL)
        assert found == "sum-1a2b3c4d-report.html\n"
        assert URL in Path("sum-1a2b3c4d-report.html").read_text()
        found, _ = read("compare", URL, URL, "-o", "json")
        assert [each["name"] for each in json.loads(found)["runs"]] == ["sum", "sum"]
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("url", "variables", "message"),
    [
        ("s3://missing/x", {}, r"NoSuchBucket: .* Correct the bucket, or set AWS_ENDPOINT_URL_S3"),
        ("s3://runs", {}, r"s3://runs has no prefix: use s3://BUCKET/PREFIX"),
        (f"s3://rlt:{SECRET_KEY}@{BUCKET}/x", {}, r"The URL has no name of a bucket: use s3://BUCKET/PREFIX, and AWS_"),
        (f"s3://{BUCKET}/none", {}, r"has no such objects\. Correct the URL"),
        (RUNS, {}, rf"{RUNS} is not a run: it has the runs sum-1a2b3c4d\.\nnext: rlt report {URL}"),
        (f"{URL}/checkpoints", {}, r"checkpoints is not a run\."),
        (URL, {"AWS_SECRET_ACCESS_KEY": "another"}, r"SignatureDoesNotMatch: .* Set AWS_ACCESS_KEY_ID and"),
        (URL, {"AWS_REGION": "eu-west-3"}, r"The bucket is in another region: set AWS_REGION to us-east-1\."),
        (
            URL,
            {"AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"},
            r"its credentials are missing\. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        (URL, {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, r"the server does not answer.* Set AWS_ENDPOINT_URL_S3"),
    ],
)
def test_an_error_names_the_cause_and_the_variable(
    server: str, monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = rlt("metrics", url)
    assert done.exit_code == 1
    assert re.search(message, done.stderr), done.stderr
    assert SECRET_KEY not in done.stderr
    assert "spec." not in done.stderr, "the user of a command has no manifest"


def test_a_page_is_not_a_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Page(Fault):
        @property
        def body(self) -> bytes:
            return b"<html><body>Welcome</body></html>"

    with s3_proxy(server, lambda request: Page(200, "", "")) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy)
        done = rlt("metrics", URL)
    assert f"{proxy} gives no list (the answer is html). Set AWS_ENDPOINT_URL_S3 to the URL" in done.stderr


def test_a_missing_step_names_those_of_the_bucket(server: str) -> None:
    done = rlt("rollouts", URL, "--step", "12")
    assert done.exit_code == 1
    assert f"{URL}: its steps with responses are 1, 2 … 11." in done.stderr


@pytest.mark.parametrize("fault", [False, Cut.BEFORE, Cut.HALF])
def test_a_failed_answer_is_repeated(server: str, tmp_path: Path, fault: Decision) -> None:
    faults = {1: fault, 3: fault}
    with s3_proxy(server, lambda request: faults.get(request.number, True)) as proxy:
        copy = make_copy(proxy, tmp_path)
        copy.update(select_records(URL))
    assert (copy.path / "metrics.jsonl").read_text() == METRICS


def make_copy(server: str, tmp_path: Path) -> BucketCopy:
    (tmp_path / "copy").mkdir()
    keys = {"AWS_ACCESS_KEY_ID": "rlt", "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    return BucketCopy(URL, tmp_path / "copy", {**keys, "AWS_ENDPOINT_URL": server})


def test_changes_alone_are_copied_again(server: str, tmp_path: Path) -> None:
    requested: list[str] = []

    def note(request: Request) -> bool:
        requested.append(request.key.rpartition("/")[2])
        return True

    with s3_proxy(server, note) as proxy:
        copy = make_copy(proxy, tmp_path)
        assert copy.update(select_all) == ()
        assert not (copy.path / "checkpoints").exists()
        put(URL, {"metrics.jsonl": METRICS + '{"step": 4}\n'}, server, tmp_path)
        S3Objects(RunBucket(url=URL, endpoint=server)).delete(["rollouts/step-1.jsonl"])
        requested.clear()
        copy.update(select_all)
    assert requested == [BUCKET, "metrics.jsonl"]
    assert (copy.path / "metrics.jsonl").read_text().endswith('{"step": 4}\n')
    assert not (copy.path / "rollouts/step-1.jsonl").exists()


@pytest.mark.parametrize("times", [1, 100])
def test_an_object_that_is_replaced_meanwhile_is_listed_again(server: str, tmp_path: Path, times: int) -> None:
    count = 0

    def decide(request: Request) -> bool:
        nonlocal count
        if request.key.endswith("/metrics.jsonl") and count < times:
            count += 1
            put(URL, {"metrics.jsonl": f'{{"step": {count}}}\n'}, server, tmp_path)
        return True

    with s3_proxy(server, decide) as proxy:
        copy = make_copy(proxy, tmp_path)
        if times == 1:
            copy.update(select_records(URL))
            assert (copy.path / "metrics.jsonl").read_text() == '{"step": 1}\n'
        else:
            with pytest.raises(UnavailableError, match="its objects change while they are copied"):
                copy.update(select_records(URL))
            assert count == bucket_copy.ROUNDS


def test_a_copy_is_bounded() -> None:
    """Files of the run are first, then the rollouts of the latest steps."""
    half = MAX_BYTES // 2
    objects = [Listed(f"x/rollouts/step-{step}.jsonl", half, "") for step in (9, 10, 11)]
    kept, notes = limit_size([*objects, Listed("x/metrics.jsonl", half, "")])
    assert [each.key for each in kept] == ["x/metrics.jsonl", "x/rollouts/step-11.jsonl"]
    assert notes == ("2 objects are not copied: at most 1024 MiB are.",)


@pytest.mark.parametrize(("url", "run"), [(URL, "sum-1a2b3c4d"), (RUNS, None)])
def test_the_page_follows_a_bucket(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, run: str | None
) -> None:
    """Of one run, and of all runs below a prefix."""
    monkeypatch.setattr(ui, "INTERVAL_S", 0.01)

    async def serve(source: Any, port: int, announce: Callable[[str], None], *, run: str | None) -> None:
        (row,) = await source.list_runs()
        assert (source.title, run) == (url, run)
        assert len((await source.read_metrics(row["id"]))["steps"]) == 3
        commands = (await source.describe(row["id"]))["commands"]
        assert commands[0] == f"rlt report {URL}"
        put(URL, {"metrics.jsonl": METRICS + '{"step": 4}\n'}, server, tmp_path)
        async with asyncio.timeout(60):
            while len((await source.read_metrics(row["id"]))["steps"]) == 3:
                await asyncio.sleep(0.01)
        announce("ended")

    monkeypatch.setattr(page, "serve", serve)
    done = rlt("ui", url)
    assert done.stdout == "ended (Ctrl-C ends it)\n", done.output
