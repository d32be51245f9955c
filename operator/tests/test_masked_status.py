"""Plain-text secrets of a job appear in no status, no event and no log line, whatever prints them."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import checked as c
import observed as o
import pytest

from rlt_api.model import ApiModel
from rlt_api.status.job_status import RLTrainingJobStatus, RuntimeSnapshot
from rlt_core.job import parse_job
from rlt_operator.lifecycle.masking import mask_status
from rlt_operator.logs import JsonLines
from rlt_operator.observation import Observed, Ray, RayJob, Rejection
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
RUNNING = RayJob("RUNNING", start_ms=1767323000000)


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


def test_a_preflight_check_a_disruption_and_the_progress() -> None:
    check = {"name": "data", "result": "failed", "message": f"{SECRET} {TOKEN}", "value": SECRET, "remedy": SECRET}
    assert_masked(replace(c.BAD, job=replace(c.BAD.job, submitted_spec=SPEC), ray=c.checks("FAILED", [check])))
    report = o.report(stage=SECRET, exported_path=f"/mnt/{SECRET}", checkpoint_error=f"no space for {TOKEN}")
    started = replace(o.STARTED, job=replace(o.STARTED.job, submitted_spec=SPEC))
    assert_masked(replace(started, ray=Ray(job=RUNNING, progress=report)))
    evicted = replace(o.pods()[2], deleting=True, disruption="EvictionByEvictionAPI", message=f"{SECRET} {TOKEN}")
    pods = (*o.pods()[:2], evicted)
    assert_masked(replace(started, pods=pods))


def test_a_report_that_changes_only_the_progress_is_written_as_often_as_without_secrets() -> None:
    job = replace(o.STARTED.job, submitted_spec=SPEC)
    first = o.after(replace(o.STARTED, job=job, ray=Ray(job=RUNNING, progress=o.report(90, stage=SECRET))))
    assert first.job.status.progress
    assert first.job.status.progress.stage == "***"
    again = replace(first, ray=Ray(job=RUNNING, progress=o.report(91, stage=SECRET)))
    assert plan(again, o.NOW).status is None


def plant(model: type[ApiModel]) -> dict[str, Any]:
    """A value of the model with the secret in each of its strings."""
    return {name: _plant(field.annotation) for name, field in model.model_fields.items()}


def _plant(kind: Any) -> Any:
    arguments = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is Literal:
        return arguments[0]
    if get_origin(kind) is Annotated or get_origin(kind) in (Union, UnionType):
        return _plant(arguments[0])
    if get_origin(kind) is list:
        return [_plant(arguments[0])]
    if get_origin(kind) is dict:
        return {"a": _plant(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, ApiModel):
        return plant(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return next(iter(kind))
    return f"a {SECRET} b" if kind is str else 1


def list_secret_paths(value: Any, path: str = "") -> set[str]:
    if isinstance(value, str):
        return {path} if SECRET in value else set()
    if isinstance(value, list):
        return {found for each in value for found in list_secret_paths(each, path)}
    if isinstance(value, dict):
        return {
            found for key, each in value.items() for found in list_secret_paths(each, f"{path}.{key}" if path else key)
        }
    return set()


def test_every_string_of_the_status_is_masked_but_constants_and_identities() -> None:
    planted = RLTrainingJobStatus.model_validate({**plant(RLTrainingJobStatus), "resolved_spec": "{}"})
    before = list_secret_paths(planted.model_dump())
    assert {"message", "preflight.message", "progress.stage", "checkpoint.exported_path", "disruption.message"} < before
    after = list_secret_paths(mask_status(JOB, planted, RLTrainingJobStatus()).model_dump())
    assert {path for path in after if not IDENTITY.search(path)} == set()


IDENTITY = re.compile(
    r"(_uid|\.reason|\.type|\.code|\.severity|\.rule|prepare_step|prepared\.name|node_at_fault"
    r"|attempts\.(disruption|finding))$"
    r"|^(runtime|ray_cluster|preflight_passed|network\.(profile|fabric|vendor|attach|excluded|overridden|env\.))"
)
"""What the API server or the operator has named."""


def test_a_constant_that_is_also_a_secret_stays() -> None:
    env = [{"name": "PASSWORD", "value": value} for value in ("Running", "Accepted", o.CLUSTER_UID)]
    spec = {**o.COMMAND_SPEC, "cluster": {**o.SPEC["cluster"], "env": env}}
    status = o.after(replace(o.STARTED, job=replace(o.STARTED.job, submitted_spec=spec))).job.status
    assert {"Running", "Accepted"} < {each.type for each in status.conditions}
    assert status.current_attempt
    assert status.current_attempt.ray_cluster_uid == o.CLUSTER_UID
