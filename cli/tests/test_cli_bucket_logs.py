"""The output of programs in a bucket of a real S3 server, as run-command puts it and `rlt logs` reads it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket_servers import bucket_server
from click.testing import CliRunner, Result
from s3_proxy import Cut, Decision, Request, s3_proxy

from rlt.runs.bucket_copy import BucketCopy, select_all
from rlt_cli.main import cli
from rlt_e2e.cluster.s3_server import SECRET_KEY
from rlt_pod.command import log_parts
from rlt_pod.command.log_file import LogFile
from rlt_pod.command.log_parts import LogParts
from rlt_ui.logs import list_files, read_file

pytestmark = pytest.mark.slow

URL = "s3://runs/team/runs/sum-1a2b3c4d"
LOG = f"{URL}/attempts/1/program.log"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with bucket_server(tmp_path, "runs") as url:
        yield url


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def run_command(server: str, script: str, log: str = LOG) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlt_pod", "run-command", "--no-progress", "--log", log, "--log-endpoint", server]
    return subprocess.run(
        [*command, "--", sys.executable, "-uc", script], capture_output=True, text=True, check=False, timeout=60
    )


def list_parts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "objects/runs/team/runs/sum-1a2b3c4d/attempts/1/program.log").iterdir())


def test_logs_outlive_the_pods_without_a_volume(server: str, tmp_path: Path) -> None:
    """A resumption continues the log of its attempt. The run failed before it had a config in the bucket."""
    for text in ("before", "after"):
        assert run_command(server, f"print('{text} the suspension')").returncode == 0
    log = f"{URL}/attempts/2/program.log"
    assert run_command(server, "print('a'); raise SystemError('b')", log).returncode == 1
    assert run_command(server, "print('10%')", f"{URL}/attempts/2/prepare-data.log").returncode == 0

    assert rlt("logs", URL, "--attempt", "1").stdout == "before the suspension\nafter the suspension\n"
    done = rlt("logs", URL)
    assert done.stdout.startswith("a\nTraceback")
    assert rlt("logs", URL, "--tail", "1").stdout == "SystemError: b\n"
    assert rlt("logs", URL, "--step", "data").stdout == "10%\n"
    found = json.loads(rlt("logs", URL, "--list", "-o", "json").stdout)
    assert [each["path"] for each in found] == ["1/program.log", "2/prepare-data.log", "2/program.log"]
    assert found[0]["size"] == len("before the suspension\nafter the suspension\n")

    missing = rlt("logs", URL, "--attempt", "3")
    assert (missing.exit_code, "The run has no kept file 3/program.log" in missing.stderr) == (1, True)
    for option in (["--follow"], ["--head"], ["--pod", "p"]):
        assert "a run directory or bucket has kept logs alone" in rlt("logs", URL, *option).stderr


def test_a_run_without_logs_is_named(server: str, tmp_path: Path) -> None:
    run = tmp_path / "objects/runs/team/runs/sum-1a2b3c4d"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    assert f"{URL} has no logs." in rlt("logs", URL).stderr
    assert "is not a run: it has the runs sum-1a2b3c4d." in rlt("logs", "s3://runs/team/runs").stderr


def test_a_run_directory_is_read_like_a_bucket(tmp_path: Path) -> None:
    (tmp_path / "attempts/1").mkdir(parents=True)
    (tmp_path / "attempts/1/program.log").write_text("kept\n")
    assert rlt("logs", str(tmp_path)).stdout == "kept\n"


def test_a_part_that_is_not_taken_is_put_with_the_next_output(server: str, tmp_path: Path) -> None:
    """Without an answer, with an error, and with an answer that is lost."""
    faults: dict[int, Decision] = {1: Cut.BEFORE, 2: False, 3: Cut.AFTER}
    with s3_proxy(server, lambda request: faults.get(request.number, True)) as proxy:
        parts = LogParts(LOG, proxy)
        for number in (1, 2, 3):
            with pytest.raises(OSError, match=r"answer|closed|503"):
                parts.append(b"%d\n" % number)
        parts.append(b"4\n")
    (part,) = list_parts(tmp_path)
    assert part.read_text() == "1\n2\n3\n4\n"


def test_a_program_ends_as_without_its_log(server: str) -> None:
    """A bucket that rejects each part is reported once. The keys are in no message."""
    done = run_command(server, "print('output'); raise SystemExit(5)", "s3://missing/runs/sum/attempts/1/program.log")
    assert (done.returncode, done.stdout) == (5, "output\n")
    assert re.fullmatch(r"run_command: cannot write s3://missing/\S+: .* NoSuchBucket: [^\n]*\n", done.stderr)
    assert SECRET_KEY not in done.stderr


def test_the_log_is_bounded(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_parts, "PART_BYTES", 10)
    monkeypatch.setattr(log_parts, "MAX_PARTS", 2)
    monkeypatch.setattr(log_parts, "MAX_FAILED_BYTES", 16)
    parts = LogParts(LOG, server)
    for letter in "abcd":
        parts.append(letter.encode() * 6)
        parts.append(letter.encode() * 6)
    assert [part.read_text() for part in list_parts(tmp_path)] == ["d" * 12]
    parts.append(b"e" * 20)
    assert [part.read_text() for part in list_parts(tmp_path)] == ["e" * 16]


def test_output_is_put_while_the_program_runs(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the interval, or at once when there is much."""
    put = []
    monkeypatch.setattr(LogParts, "append", lambda self, output: put.append(len(output)))
    monkeypatch.setattr("rlt_pod.command.log_file.CLOSE_TIMEOUT_S", 60.0)
    log = LogFile(LOG, server)
    monkeypatch.setattr("rlt_pod.command.log_file.MAX_WAITING_BYTES", 2**40)
    for _ in range(2**11):
        log.write(b"x" * 1024)
    log.close()
    assert sum(put) == 2**21


def test_a_copy_has_the_parts_as_one_file(server: str, tmp_path: Path) -> None:
    """It follows a growing part, new parts, and the deletion of old ones."""
    requested: list[str] = []

    def note(request: Request) -> bool:
        requested.append(request.key.rpartition("-")[2])
        return True

    parts = LogParts(LOG, server)
    with s3_proxy(server, note) as proxy:
        keys = {"AWS_ACCESS_KEY_ID": "rlt", "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        (tmp_path / "copy").mkdir()
        copy = BucketCopy(URL, tmp_path / "copy", {**keys, "AWS_ENDPOINT_URL": proxy})
        texts = []
        for output in (b"one\n", b"x" * log_parts.PART_BYTES, b"two\n", b"three\n"):
            parts.append(output)
            copy.update(select_all)
            texts.append((copy.path / "attempts/1/program.log").read_bytes())
        assert requested.count("000000") == 2, "a complete part is copied once"
        whole = b"one\n" + b"x" * log_parts.PART_BYTES
        assert texts == [b"one\n", whole, whole + b"two\n", whole + b"two\nthree\n"]
        (log,) = list_files(copy.path)
        assert log["title"] == "Attempt 1: program.log"
        assert read_file(copy.path, log["id"]).endswith("two\nthree\n")
        list_parts(tmp_path)[0].unlink()
        copy.update(select_all)
    assert (copy.path / "attempts/1/program.log").read_bytes() == b"two\nthree\n"
