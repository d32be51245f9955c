"""`rlt submit` beside others who change the same job: nobody's setting is overwritten unasked.

- a conflict names the fields, their owners and the command to go on with;
- what nobody else has set is changed without a word.
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


def test_a_setting_of_somebody_else_is_not_overwritten_unasked(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str
) -> None:
    change(job_file, suspend=True, activeDeadlineSeconds=100)
    rlt("submit", job_file)
    rlt("resume", "sum")
    patch = '{"spec": {"activeDeadlineSeconds": 200}}'
    kubernetes.kubectl("patch", "rltrainingjob", "sum", "-n", namespace, "--type=merge", "-p", patch)
    refused = rlt("submit", job_file, expected=1)
    assert refused.stderr.splitlines() == [
        "error: sum has other values now in fields that the file sets: spec.activeDeadlineSeconds (set by "
        "kubectl-patch), spec.suspend (set by rlt-resume).",
        f"next: rlt submit {job_file} --force-conflicts -n {namespace}",
    ]
    forced = json.loads(rlt("submit", job_file, "--force-conflicts", "-o", "json").stdout)
    assert (forced[0]["spec"]["suspend"], forced[0]["spec"]["activeDeadlineSeconds"]) == (True, 100)


def test_a_setting_that_the_file_does_not_have_stays(rlt: Rlt, job_file: str) -> None:
    rlt("submit", job_file)
    rlt("suspend", "sum")
    change(job_file, activeDeadlineSeconds=100)
    (job,) = json.loads(rlt("submit", job_file, "-o", "json").stdout)
    assert (job["spec"]["suspend"], job["spec"]["activeDeadlineSeconds"]) == (True, 100)


def test_with_wait_the_answer_is_the_job_as_it_is_then(rlt: Rlt, job_file: str) -> None:
    done = rlt("submit", job_file, "--wait", "--timeout", "1s", "-o", "json", expected=2)
    assert [job["metadata"]["name"] for job in json.loads(done.stdout)] == ["sum"]
    assert "sum: not Succeeded within 1s" in done.stderr


def test_waiting_for_no_time_looks_once(rlt: Rlt, job_file: str) -> None:
    rlt("submit", job_file)
    done = rlt("wait", "sum", "--timeout", "0", "-o", "json", expected=2)
    assert json.loads(done.stdout)["metadata"]["name"] == "sum"
    assert done.stderr.startswith("sum: waiting for Succeeded: ")
