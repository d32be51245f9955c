"""`rlt get` and `rlt watch` show the same as kubectl.

- the same columns and cells, in one namespace or in all namespaces, with a label selector;
- the same object, and a stream of its changes.
"""

from __future__ import annotations

import json
import re
import signal

import observed as o
import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Operator

from rlt_core.names import JOB_LABEL

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("options", [[], ["-o", "wide"], ["--all-namespaces"]], ids=" ".join)
def test_the_table_equals_kubectls(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator, options: list[str]
) -> None:
    rlt("submit", job_file)
    rlt("suspend", "sum")  # from here on nothing changes
    rlt("wait", "sum", "--for", "Suspended", "--timeout", "300s")
    expected = kubernetes.kubectl("get", "rltrainingjobs", "-n", namespace, *options)
    assert own_row(rlt("get", *options).stdout, namespace) == own_row(expected, namespace)


def own_row(table: str, namespace: str) -> tuple[list[str], list[str]]:
    """The titles, and the cells of the job in this namespace without its age."""
    titles, *rows = (line.split() for line in table.splitlines())
    (row,) = [row for row in rows if titles[0] == "NAME" or row[0] == namespace]
    return titles, [cell for cell in row if not re.fullmatch("[0-9]+[smh]", cell)]


def test_jobs_are_selected_by_labels(kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str) -> None:
    rlt("submit", job_file)
    kubernetes.kubectl("label", "rltrainingjob", "sum", "team=a", "-n", namespace)
    assert len(json.loads(rlt("get", "-l", "team=a", "-o", "json").stdout)) == 1
    assert rlt("get", "-l", "team=b").stderr == f"no jobs with labels team=b in namespace {namespace}\n"
    assert "found '='" in rlt("get", "-l", "=", expected=1).stderr


def test_managed_fields_are_omitted(rlt: Rlt, job_file: str) -> None:
    submitted = json.loads(rlt("submit", job_file, "-o", "json").stdout)
    outputs = [*submitted, *json.loads(rlt("get", "-o", "json").stdout)]
    outputs += [json.loads(rlt("status", "sum", "-o", "json").stdout)["job"]]
    outputs += [yaml.safe_load(rlt(command, "sum", "-o", "yaml").stdout) for command in ("get", "suspend", "resume")]
    assert len(outputs) == 6
    assert all("managedFields" not in output["metadata"] for output in outputs)


def test_watch_prints_one_line_of_json_per_change(rlt: Rlt, job_file: str, operator: Operator) -> None:
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
        assert watching.wait(timeout=300) == 1


def test_several_names_and_files_select_jobs(kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str) -> None:
    rlt("submit", job_file)
    kubernetes.create_job(namespace, o.SPEC, "other")
    assert rlt("get", "rltj/sum", "other", "-o", "name").stdout.split() == [
        "rltrainingjob.rlt.dev/sum",
        "rltrainingjob.rlt.dev/other",
    ]
    assert json.loads(rlt("get", "-f", job_file, "-o", "json").stdout)["metadata"]["name"] == "sum"
    assert "RLTrainingJob nosuch does not exist" in rlt("get", "sum", "nosuch", expected=1).stderr


def test_get_watch_prints_a_row_for_each_change(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str
) -> None:
    rlt("submit", job_file)
    with rlt.start("get", "--watch", "-o", "name") as watching:
        assert watching.stdout
        assert watching.stdout.readline() == "rltrainingjob.rlt.dev/sum\n"
        kubernetes.create_job(namespace, o.SPEC, "later")
        assert watching.stdout.readline() == "rltrainingjob.rlt.dev/later\n"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=300) == 130


def test_delete_selects_by_file_and_label(kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str) -> None:
    rlt("submit", job_file)
    kubernetes.create_job(namespace, o.SPEC, "other")
    kubernetes.patch(namespace, "rltrainingjob", "other", {"metadata": {"labels": {"team": "a"}}})
    assert rlt("delete", "-l", "team=b", "--yes").stderr == f"no jobs with labels team=b in namespace {namespace}\n"
    assert rlt("delete", "-l", "team=a", "--yes").stdout == "other deleted\n"
    assert rlt("delete", "-f", job_file, "--yes").stdout == "sum deleted\n"
    assert rlt("get", "-o", "name").stdout == ""


def test_delete_all_deletes_the_jobs_of_the_namespace(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str
) -> None:
    rlt("submit", job_file)
    kubernetes.create_job(namespace, o.SPEC, "other")
    assert "delete --all --yes" in rlt("delete", "--all", expected=1).stderr
    assert rlt("delete", "rltj", "--all", "--yes").stdout == "other deleted\nsum deleted\n"
    assert rlt("delete", "--all", "--yes").stderr == f"no jobs in namespace {namespace}\n"


def test_wait_for_the_deletion_of_a_job(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator
) -> None:
    """The finalizer keeps the job until the operator has removed its cluster."""
    assert "does not exist" in rlt("wait", "sum", "--for=delete").stderr
    rlt("submit", job_file)
    late = rlt("wait", "sum", "--for=delete", "--timeout", "1s", expected=2).stderr
    assert "sum: not deleted within 1s. waiting for deletion: " in late
    with rlt.start("wait", "sum", "--for=delete", "-o", "json") as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline().startswith("waiting for deletion: ")
        rlt("delete", "sum", "--yes")
        assert waiting.wait(timeout=300) == 0
        assert waiting.stdout
        assert json.loads(waiting.stdout.read())["metadata"]["name"] == "sum"


def test_logs_of_a_container(kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str) -> None:
    """The log of a pod without a node is empty; of a container that it does not have, the API server rejects it."""
    rlt("submit", job_file)
    labels = {JOB_LABEL: "sum", "ray.io/node-type": "head"}
    containers = [{"name": name, "image": "registry.example.com/a:b"} for name in ("ray-head", "proxy")]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sum-head", "labels": labels}}
    init_containers = [{**containers[0], "name": "wait"}]
    kubernetes.create(namespace, {**pod, "spec": {"containers": containers, "initContainers": init_containers}})
    missing = rlt("logs", "sum", "--head", "-c", "nosuch", expected=1).stderr
    assert "sum-head has no container nosuch. Its containers: ray-head, proxy; init containers: wait." in missing
    assert "next: rlt logs sum --pod sum-head --container ray-head" in missing
    for container in ("proxy", "wait"):
        rlt("logs", "sum", "--head", "-c", container)


def test_events_of_the_job_are_listed(rlt: Rlt, job_file: str, operator: Operator) -> None:
    rlt("submit", job_file)
    rlt("cancel", "sum")
    rlt("wait", "sum", "--for=condition=Failed", "--timeout", "300s")
    events = json.loads(rlt("events", "sum", "-o", "json").stdout)
    assert "Cancelled" in [event["reason"] for event in events]
    assert rlt("events", "sum").stdout.startswith("LAST SEEN")
    assert "does not exist" in rlt("events", "nosuch", expected=1).stderr
