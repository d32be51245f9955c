"""The accelerator seconds by role: each phase keeps its sum, and each role has its share of the total."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt_api.status.job_status import UsageParts
from rlt_operator.usage_roles import count_by_role, divide_by_role
from rlt_pod.report.phase_seconds import Devices, divide_step

STEP = {"timing_s/gen": 50.0, "timing_s/update_actor": 30.0, "timing_s/update_weights": 4.0, "timing_s/testing": 6.0}


def group(name: str, replicas: int, **changes: Any) -> dict[str, Any]:
    resources = {"cpu": "1", "memory": "4Gi"}
    accelerator = {"resourceName": "nvidia.com/gpu", "count": 8}
    return {"name": name, "replicas": replicas, "resources": resources, "accelerator": accelerator, **changes}


def spec(*groups: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**o.SPEC, **changes, "cluster": {**o.SPEC["cluster"], "workers": list(groups)}}


ENGINES = {"rollout": {"mode": "separate", "workerGroup": "engines"}}
SEPARATE = spec(group("train", 1), group("engines", 3), **ENGINES)
ELASTIC = spec(group("train", 1), group("engines", 3, minReplicas=1, maxReplicas=4), rolloutReplicas=2, **ENGINES)


@pytest.mark.parametrize(
    ("submitted", "roles"),
    [
        (spec(group("workers", 2)), {"colocated": 16}),
        (SEPARATE, {"trainer": 8, "rollout": 24}),
        (ELASTIC, {"trainer": 8, "rollout": 16}),
        ({**SEPARATE, "framework": {"type": "verl"}}, {"unknown": 32}),
        (o.ON_GPUS, {"unknown": 16}),
    ],
    ids=["colocated", "separate", "rolloutReplicas", "verl", "command"],
)
def test_the_spec_has_the_roles(submitted: dict[str, Any], roles: dict[str, int]) -> None:
    job = o.job(submitted)
    assert job.spec
    assert count_by_role(job.spec) == roles


def test_roles_are_the_inverse_of_the_report() -> None:
    """One step of 100 s on 4 and 12 accelerators, as the driver reports it: each role has what it did."""
    reported = divide_step({**STEP, "overlap_s/gen": 10.0}, 100.0, Devices(4, 12))
    by = {"starting": 160, **{phase: round(16 * seconds) for phase, seconds in reported.items()}}
    assert divide_by_role(by, {"trainer": 4, "rollout": 12}) == {
        ("trainer", "starting"): 40,
        ("rollout", "starting"): 120,
        ("rollout", "generate"): 12 * 60,
        ("trainer", "update"): 4 * 30,
        ("trainer", "sync"): 4 * 4,
        ("rollout", "sync"): 12 * 4,
        ("rollout", "evaluate"): 12 * 6,
        ("trainer", "idle"): 4 * (100 - 30 - 4),
        ("rollout", "idle"): 12 * (100 - 60 - 4 - 6),
    }


def test_accelerators_with_one_role_keep_all_parts() -> None:
    by = UsageParts(generate=200, idle=100).model_dump()
    assert divide_by_role(by, {"colocated": 8}) == {("colocated", phase): seconds for phase, seconds in by.items()}


@given(st.fixed_dictionaries(dict.fromkeys(UsageParts.model_fields, st.integers(0, 10**9))), st.integers(1, 64))
def test_each_phase_keeps_its_sum(by: dict[str, int], rollout: int) -> None:
    """Also if the numbers of accelerators have changed, so that a role has worked more than its present share."""
    found = divide_by_role(by, {"trainer": 8, "rollout": rollout})
    assert min(found.values()) >= 0
    for phase, seconds in by.items():
        assert sum(value for (_, each), value in found.items() if each == phase) == pytest.approx(seconds)
