"""What `rlt` shows of jobs, beside what kubectl shows of them.

- the same columns and cells, in one namespace or in all, for the labels asked for;
- the same object, and a stream of it.
"""

from __future__ import annotations

import json
import re

import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Operator

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("options", [[], ["-o", "wide"], ["--all-namespaces"]], ids=" ".join)
def test_the_table_is_kubectls(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator, options: list[str]
) -> None:
    rlt("submit", job_file)
    rlt("suspend", "sum")  # and nothing changes any more
    rlt("wait", "sum", "--for", "Suspended", "--timeout", "60s")
    theirs = kubernetes.kubectl("get", "rltrainingjobs", "-n", namespace, *options)
    assert own_row(rlt("get", *options).stdout, namespace) == own_row(theirs, namespace)


def own_row(table: str, namespace: str) -> tuple[list[str], list[str]]:
    """The titles, and the cells of this namespace's job but its age."""
    titles, *rows = (line.split() for line in table.splitlines())
    (row,) = [row for row in rows if titles[0] == "NAME" or row[0] == namespace]
    return titles, [cell for cell in row if not re.fullmatch("[0-9]+[smh]", cell)]


def test_jobs_are_chosen_by_their_labels(kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str) -> None:
    rlt("submit", job_file)
    kubernetes.kubectl("label", "rltrainingjob", "sum", "team=a", "-n", namespace)
    assert len(json.loads(rlt("get", "-l", "team=a", "-o", "json").stdout)) == 1
    assert rlt("get", "-l", "team=b").stderr == f"no jobs with labels team=b in namespace {namespace}\n"
    assert "found '='" in rlt("get", "-l", "=", expected=1).stderr


def test_fields_that_only_the_api_server_reads_are_left_out(rlt: Rlt, job_file: str) -> None:
    submitted = json.loads(rlt("submit", job_file, "-o", "json").stdout)
    answers = [*submitted, *json.loads(rlt("get", "-o", "json").stdout)]
    answers += [json.loads(rlt("status", "sum", "-o", "json").stdout)["job"]]
    answers += [yaml.safe_load(rlt(command, "sum", "-o", "yaml").stdout) for command in ("get", "suspend", "resume")]
    assert len(answers) == 6
    assert all("managedFields" not in answer["metadata"] for answer in answers)


def test_a_watched_job_is_a_line_of_json_at_each_change(rlt: Rlt, job_file: str, operator: Operator) -> None:
    rlt("submit", job_file)
    with rlt.start("watch", "sum", "-o", "json") as watching:
        assert watching.stdout
        assert json.loads(watching.stdout.readline())["metadata"]["name"] == "sum"
        rlt("suspend", "sum")
        phases = (json.loads(line).get("status", {}).get("phase") for line in watching.stdout)
        assert "Suspended" in phases
        rlt("cancel", "sum")
        *_, last = phases
        assert last == "Failed"
        assert watching.wait(timeout=60) == 1
