"""Plain-text secrets of a job appear in no status, no event and no log line, whatever prints them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import observed as o
import pytest

from rlt_api.status.job_status import RuntimeSnapshot
from rlt_core.job import parse_job
from rlt_operator.logs import JsonLines
from rlt_operator.observation import Observed, Rejection
from rlt_operator.reconcile.plan import Plan, plan

SECRET = "correct-horse"
TOKEN = "hf_" + "aBcDeFgH" * 4
FABRIC_SECRET = "fabric-battery"
ENV = [{"name": "DB_PASSWORD", "value": SECRET}, {"name": "FI_AUTH_KEY", "value": FABRIC_SECRET}]
SPEC: dict[str, Any] = {
    **o.COMMAND_SPEC,
    "framework": {"type": "command", "command": ["train", "--api-key", "staple-1234"]},
    "cluster": {**o.SPEC["cluster"], "env": ENV},
}
SECRETS = (SECRET, TOKEN, FABRIC_SECRET, "staple-1234")
JOB = o.job(SPEC)


def texts(planned: Plan) -> str:
    """The status and the events of a plan. The resolved spec is not printed: it is a copy, as the spec itself."""
    status = planned.status.model_copy(update={"resolved_spec": None}).to_json() if planned.status else None
    return json.dumps([status, [each.message for each in planned.events]])


def assert_masked(observed: Observed) -> None:
    printed = texts(plan(observed, o.NOW))
    assert "***" in printed
    assert not [secret for secret in SECRETS if secret in printed]


LOG = f"login as jane with {SECRET}\nHTTP 401: Bearer {TOKEN} is invalid\nrun train --api-key staple-1234"


def test_an_error_extract_from_the_log() -> None:
    assert_masked(replace(o.READY, job=JOB, ray=o.ended("FAILED", LOG)))


def test_the_message_of_a_failed_attempt() -> None:
    job = o.job({**SPEC, "failurePolicy": {"maxRestarts": 2}})
    assert_masked(replace(o.READY, job=job, ray=o.ended("FAILED", LOG)))


def test_a_rejection_by_the_api_server_or_ray() -> None:
    assert_masked(
        Observed(
            JOB, rejection=Rejection(f"admission webhook denied the request: env DB_PASSWORD={SECRET}", stalled=True)
        )
    )
    assert_masked(Observed(JOB, rejection=Rejection(f"entrypoint train --api-key staple-1234 {TOKEN}", stalled=True)))


def test_an_invalid_spec() -> None:
    wrong = {**SPEC, "cluster": {**SPEC["cluster"], "env": [{"name": f"a {TOKEN}", "value": "1"}]}}
    assert_masked(Observed(parse_job(o.manifest(wrong))))


def test_the_secret_of_a_runtime() -> None:
    runtime = RuntimeSnapshot(name="r", generation=1, spec={"defaults": {"cluster": {"env": ENV}}})
    job = o.job({**o.SPEC, "runtimeRef": {"name": "r"}}, runtime=runtime)
    printed = plan(replace(o.READY, job=job, ray=o.ended("FAILED", LOG)), o.NOW).status
    assert printed
    assert SECRET not in (printed.message or "")


def test_the_network_in_the_status_and_the_variables_of_the_pods() -> None:
    assert JOB.status.network
    assert {each.name: each.value for each in JOB.status.network.env}["FI_AUTH_KEY"] == "***"
    cluster = next(each for each in plan(Observed(JOB), o.NOW).apply if each["kind"] == "RayCluster")
    (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": "FI_AUTH_KEY", "value": FABRIC_SECRET} in container["env"]


def test_the_next_reconciliation_does_not_change_a_masked_status() -> None:
    failed = o.after(replace(o.READY, job=JOB, ray=o.ended("FAILED", LOG)))
    released = o.after(replace(failed, cluster=None, pods=(), ray=None))
    assert plan(released, o.NOW).status is None


@pytest.mark.parametrize("secret", [TOKEN, f"Bearer {TOKEN}", f"HF_TOKEN={SECRET}"])
def test_a_log_line_of_the_operator(secret: str) -> None:
    try:
        raise ValueError(f"failed with {secret}")
    except ValueError as error:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "with %s", (secret,), (type(error), error, None))
    line = JsonLines().format(record)
    assert "***" in line
    assert secret not in line
