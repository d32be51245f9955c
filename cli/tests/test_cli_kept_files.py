"""The pod that reads the kept files of a job, and its program. e2e/tests/test_failures.py runs it on a cluster."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import observed as o
import pytest
from click.testing import CliRunner

from rlt.kept_files import build_reader_pod, has_kept_files
from rlt_cli.main import cli
from rlt_core.job import parse_job
from rlt_pod import read_attempts as attempt_reader

CLAIMED: dict[str, Any] = {**o.SPEC, "storage": {"claimName": "runs", "mountPath": "/data"}}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Run the program as the pod does, on a run directory with three attempts."""
    for path, text in {
        "1/program.log": "first\n",
        "2/program.log.1": "a\nb\n",
        "2/program.log": "c\n\xff",
        "2/ray/sum-head-a/raylet.out": "raylet\n",
        "10/stacks/sum-head-a-7.txt": "Thread 7\n",
    }.items():
        file = tmp_path / "attempts" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("latin-1"))
    (tmp_path / "attempts/1/link").symlink_to("/etc/passwd")

    def run(*arguments: str, code: int = 0) -> str:
        job = o.job(CLAIMED)
        assert job.spec
        pod = build_reader_pod(job, job.spec, *arguments)
        command = pod["spec"]["containers"][0]["command"]
        assert command[4] == "/data/runs/sum-11111111"
        done = subprocess.run([sys.executable, *command[1:4], str(tmp_path), *command[5:]], capture_output=True)
        assert done.returncode == code, done.stderr
        return done.stdout.decode(errors="replace")

    return run


def test_all_files_are_listed_without_links(run: Callable[..., str]) -> None:
    found = [json.loads(line) for line in run("list").splitlines()]
    assert [(each["path"], each["size"]) for each in found] == [
        ("1/program.log", 6),
        ("10/stacks/sum-head-a-7.txt", 9),
        ("2/program.log", 3),
        ("2/program.log.1", 4),
        ("2/ray/sum-head-a/raylet.out", 7),
    ]


def test_a_log_begins_with_the_file_that_it_continues(run: Callable[..., str]) -> None:
    heading, _, text = run("show", "2/program.log", "1000").partition("\n")
    assert json.loads(heading) == {"path": "2/program.log", "size": 7, "shown": 7}
    assert text == "a\nb\nc\n\ufffd"


def test_a_long_log_is_cut_to_its_end(run: Callable[..., str]) -> None:
    heading, _, text = run("show", "2/program.log", "5").partition("\n")
    assert (json.loads(heading)["shown"], text) == (5, "b\nc\n\ufffd")


def test_a_path_without_a_number_is_of_the_latest_attempt(run: Callable[..., str]) -> None:
    assert '"path": "10/stacks/sum-head-a-7.txt"' in run("show", "stacks/sum-head-a-7.txt", "1000")
    assert "attempts/10/program.log: No such file" in run("show", "program.log", "1000", code=1)


def unpack(output: str) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(output))) as archive:
        return archive.getnames()


def test_the_archive_has_the_latest_files_within_its_size(run: Callable[..., str], tmp_path: Path) -> None:
    assert len(unpack(run("pack", "100000"))) == 5
    for age in range(4):
        file = tmp_path / f"attempts/2/ray/worker-{age}.out"
        file.write_bytes(os.urandom(200_000))
        os.utime(file, (time.time() + 60 - age, time.time() + 60 - age))
    assert unpack(run("pack", "450000"))[:2] == ["2/ray/worker-0.out", "2/ray/worker-1.out"]
    assert "2/ray/worker-2.out" not in unpack(run("pack", "450000"))


def test_a_job_without_attempts_has_no_files(tmp_path: Path) -> None:
    command = [sys.executable, attempt_reader.__file__, "show", str(tmp_path), "program.log", "9"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, f"{tmp_path}/attempts: No such file or directory\n")


def test_the_pod_is_restricted_and_mounts_the_volume_read_only() -> None:
    head = {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"key": "a"}]}
    spec = {**CLAIMED, "cluster": {**CLAIMED["cluster"], "head": head, "imagePullSecrets": ["registry"]}}
    job = o.job(spec)
    assert job.spec
    pod = build_reader_pod(job, job.spec, "list")["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 1000)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["volumeMounts"] == [{"name": "storage", "mountPath": "/data", "readOnly": True}]
    assert pod["volumes"] == [{"name": "storage", "persistentVolumeClaim": {"claimName": "runs"}}]
    assert (pod["nodeSelector"], pod["tolerations"][0]["key"]) == ({"pool": "cpu"}, "a")
    assert (pod["automountServiceAccountToken"], pod["activeDeadlineSeconds"]) == (False, 180)


def test_files_are_kept_of_a_program_that_has_run_and_has_a_volume() -> None:
    ran = {"startTime": "2026-01-02T03:04:05Z"}
    for spec, status, expected in ((CLAIMED, ran, True), (CLAIMED, {}, False), (o.SPEC, ran, False)):
        assert has_kept_files({**o.manifest(spec), "status": status}) is expected
    assert parse_job(o.manifest(CLAIMED)).spec


@pytest.mark.parametrize(
    "options", [["--list", "--attempt", "1"], ["--head", "--file", "a"], ["--attempt", "1", "--follow"]]
)
def test_options_that_contradict_each_other_are_rejected(options: list[str]) -> None:
    assert CliRunner().invoke(cli, ["logs", "sum", *options]).exit_code == 2
