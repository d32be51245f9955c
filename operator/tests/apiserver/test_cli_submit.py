"""`rlt submit` with other field managers that change the same job.

- a conflict names the fields, their field managers and the next command;
- fields without another field manager are changed without a message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes

pytestmark = pytest.mark.apiserver


def change(file: str, **spec: Any) -> None:
    manifest = yaml.safe_load(Path(file).read_text())
    Path(file).write_text(yaml.safe_dump({**manifest, "spec": {**manifest["spec"], **spec}}))


def test_a_field_of_another_manager_is_overwritten_only_with_force(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str
) -> None:
    change(job_file, suspend=True, activeDeadlineSeconds=100)
    rlt("submit", job_file)
    rlt("resume", "sum")
    patch = '{"spec": {"activeDeadlineSeconds": 200}}'
    kubernetes.kubectl("patch", "rltrainingjob", "sum", "-n", namespace, "--type=merge", "-p", patch)
    conflict = rlt("submit", job_file, expected=1)
    assert conflict.stderr.splitlines() == [
        "error: sum: other field managers changed fields that the file sets: spec.activeDeadlineSeconds (set by "
        "kubectl-patch), spec.suspend (set by rlt-resume).",
        f"next: rlt submit {job_file} --force-conflicts -n {namespace}",
    ]
    forced = json.loads(rlt("submit", job_file, "--force-conflicts", "-o", "json").stdout)
    assert (forced[0]["spec"]["suspend"], forced[0]["spec"]["activeDeadlineSeconds"]) == (True, 100)


def test_a_field_that_the_file_does_not_set_is_kept(rlt: Rlt, job_file: str) -> None:
    rlt("submit", job_file)
    rlt("suspend", "sum")
    change(job_file, activeDeadlineSeconds=100)
    (job,) = json.loads(rlt("submit", job_file, "-o", "json").stdout)
    assert (job["spec"]["suspend"], job["spec"]["activeDeadlineSeconds"]) == (True, 100)


def test_with_wait_the_latest_job_is_printed(rlt: Rlt, job_file: str) -> None:
    done = rlt("submit", job_file, "--wait", "--timeout", "1s", "-o", "json", expected=2)
    assert [job["metadata"]["name"] for job in json.loads(done.stdout)] == ["sum"]
    assert "sum: not Succeeded within 1s" in done.stderr


def test_a_timeout_of_zero_reads_the_job_once(rlt: Rlt, job_file: str) -> None:
    rlt("submit", job_file)
    done = rlt("wait", "sum", "--timeout", "0", "-o", "json", expected=2)
    assert json.loads(done.stdout)["metadata"]["name"] == "sum"
    assert done.stderr.startswith("sum: waiting for Succeeded: ")


def test_diff_and_dry_run_store_nothing(rlt: Rlt, job_file: str) -> None:
    assert rlt("diff", job_file, expected=1).stdout.startswith("--- live/RLTrainingJob/sum\n+++ submitted/")
    assert "dry run: nothing was stored" in rlt("submit", job_file, "--dry-run").stderr
    assert rlt("get", "-o", "name").stdout == ""
    rlt("submit", job_file)
    assert rlt("diff", job_file).stdout == ""
    change(job_file, activeDeadlineSeconds=100)
    assert "+  activeDeadlineSeconds: 100\n" in rlt("diff", job_file, expected=1).stdout
    rlt("submit", job_file, "--dry-run")
    assert "activeDeadlineSeconds" not in rlt("get", "sum", "-o", "yaml").stdout
    assert rlt("get", "-o", "name").stdout == "rltrainingjob.rlt.dev/sum\n"
