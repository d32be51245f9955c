"""The Python client with a real API server: submit, follow, wait, suspend, cancel, delete, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.forwarder import Forwarder
from apiserver.in_cluster import Kubernetes, Operator
from python_page import read_examples, run_example

from rlt import Client, Job
from rlt.errors import (
    ClusterError,
    FieldConflictError,
    InvalidJobError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
    WaitTimeoutError,
)

pytestmark = pytest.mark.apiserver


@pytest.fixture
def client(kubernetes: Kubernetes, namespace: str) -> Iterator[Client]:
    with Client(namespace, kubeconfig=str(kubernetes.cluster.kubeconfig)) as client:
        yield client


@pytest.fixture
def job(job_file: str) -> Job:
    return Job.from_file(job_file)


def with_spec(job: Job, **changes: Any) -> Job:
    return Job.from_manifest({**job.manifest, "spec": {**job.manifest["spec"], **changes}})


def test_a_job_from_submission_to_deletion(
    client: Client, job: Job, namespace: str, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.submit(job, dry_run=True).namespace == namespace
    assert client.list() == []
    stored = client.submit(job)
    assert (stored.name, stored.namespace, stored.has_ended) == ("sum", namespace, False)
    assert client.wait("sum", "Accepted", timeout=300).is_true("Accepted")
    phases = []
    for observed in client.follow(stored):
        phases.append(observed.phase)
        if len(phases) == 1:
            client.cancel(stored)
    assert (phases[0] in ("Pending", "Provisioning"), phases[-1]) == (True, "Failed")
    ended = client.show(stored)
    assert (ended.phase, capsys.readouterr().out.strip()) == ("Failed", ended.summary)
    assert [each.name for each in client.list()] == ["sum"]
    assert client.get("sum").status.conditions
    with pytest.raises(JobFailedError, match="sum: Failed: ") as failed:
        client.wait("sum", timeout=300)
    assert failed.value.next.startswith("rlt status sum")
    with pytest.raises(UnavailableError, match="Job sum has already ended: Failed"):
        client.cancel("sum")
    client.delete("sum")
    assert all(each.manifest["metadata"].get("deletionTimestamp") for each in client.list())


async def test_follow_continues_after_the_api_server_was_unavailable(
    kubernetes: Kubernetes, client: Client, job: Job, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    client.submit(job)
    with (
        Forwarder(kubernetes.cluster.kubeconfig) as forwarder,
        Client(namespace, kubeconfig=str(forwarder.kubeconfig(tmp_path))) as remote,
    ):
        jobs = aiter(remote.follow("sum"))
        assert (await anext(jobs)).name == "sum"
        forwarder.disconnect()
        client.suspend("sum")
        client.wait("sum", "Suspended", timeout=300)
        forwarder.connect()
        async for observed in jobs:
            if observed.is_true("Suspended"):
                break
    assert client.resume("sum").manifest["spec"]["suspend"] is False


def test_errors_name_the_next_command(client: Client, job: Job, namespace: str) -> None:
    with pytest.raises(NotFoundError, match=f"sum does not exist in namespace {namespace}") as missing:
        client.get("sum")
    assert missing.value.next.startswith(f"rlt get -n {namespace}")
    with pytest.raises(InvalidJobError, match="totalSteps") as invalid:
        client.submit(with_spec(job, training={"totalSteps": "1"}))
    assert invalid.value.findings[0].field == "spec.training.totalSteps"
    client.submit(job)
    with pytest.raises(WaitTimeoutError, match=r"sum: not Succeeded within 0\.1 s\. Pending: ") as late:
        client.wait("sum", timeout=0.1)
    assert isinstance(late.value, TimeoutError)
    for request in (client.metrics, client.rollouts, client.logs):
        with pytest.raises(UnavailableError):
            request("sum")


def test_a_field_of_another_manager_is_overwritten_only_with_force(client: Client, job: Job) -> None:
    suspended = with_spec(job, suspend=True)
    client.submit(suspended)
    client.resume("sum")
    with pytest.raises(FieldConflictError) as conflict:
        client.submit(suspended)
    assert conflict.value.owners == {"spec.suspend": "rlt-resume"}
    assert client.submit(suspended, force_conflicts=True).manifest["spec"]["suspend"] is True


def test_a_namespace_of_the_job_wins(client: Client, job: Job, namespace: str, kubernetes: Kubernetes) -> None:
    elsewhere = Client("default", kubeconfig=str(kubernetes.cluster.kubeconfig))
    stored = client.submit(job)
    assert elsewhere.get(stored).namespace == namespace
    with pytest.raises(NotFoundError):
        elsewhere.get("sum")
    elsewhere.close()


def test_without_a_kubeconfig_the_error_is_a_cluster_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="Cannot connect to a cluster"):
        Client(kubeconfig=str(tmp_path / "none"))


def test_the_page_shows_the_output_of_its_examples(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.cluster.kubeconfig))
    variables: dict[str, Any] = {}
    (build, _), *_ = read_examples()
    exec(build.text, variables)
    try:
        for code, text in (each for each in read_examples() if "client." in each[0].text):
            run_example(code, text, variables)
    finally:
        kubernetes.kubectl("delete", "rltrainingjobs", "--all", "-n", "default")
        variables["client"].close()
