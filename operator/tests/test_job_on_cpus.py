"""A job on CPUs whose model is meant for GPUs: the condition Accepted notes it."""

from __future__ import annotations

from dataclasses import replace

import observed as o
from planned import condition_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_operator.reconcile.plan import plan


def accepted(path: str) -> tuple[str, str, str]:
    workers = [{"replicas": 2, "resources": {"cpu": "8", "memory": "64Gi"}}]
    model = {"path": path, "parameters": path.rpartition("-")[2]}
    job = o.job({**o.SPEC, "model": model, "cluster": {**o.SPEC["cluster"], "workers": workers}})
    return condition_of(plan(replace(o.READY, job=job), o.NOW), C.ACCEPTED)


def test_a_large_model_on_cpus_is_noted() -> None:
    status, reason, message = accepted("org/model-1B")
    assert (status, reason) == ("True", Reason.VALID)
    assert message.startswith("The spec is valid. Note: spec.model.parameters: model.parameters 1B: ")
    assert "no accelerators, and the job trains on CPUs; add accelerator, or select a pool" in message


def test_a_small_model_on_cpus_is_not() -> None:
    assert accepted("org/model-100M")[2] == "The spec is valid."
