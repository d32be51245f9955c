"""spec.rolloutReplicas, the number of pods that only generate: the kept resolved spec, and the limits of a runtime."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import BUILTIN, VERL, elastic, merged, separate_engines

from rlt_api.frameworks.builtin.training_config import build_training_config
from rlt_api.frameworks.run import Run
from rlt_api.validation.resolved_spec import build_resolved_spec, read_resolved_spec
from rlt_api.validation.validate import validate_change, validate_job

ELASTIC = merged(BUILTIN, elastic())


def count_pods(job: dict[str, Any], accepted: dict[str, Any] = ELASTIC) -> list[int]:
    """The replicas of each group of a job after a change."""
    spec = read_resolved_spec(build_resolved_spec(accepted, None), job).spec
    assert spec
    return [group.replicas for group in spec.cluster.workers]


@pytest.mark.parametrize(("wanted", "pods"), [(None, 4), (2, 2), (6, 6), (8, 8), (1, 2), (99, 8)])
def test_the_replicas_follow_the_job_within_their_bounds(wanted: int | None, pods: int) -> None:
    assert count_pods({**ELASTIC, "rolloutReplicas": wanted}) == [1, pods]


@pytest.mark.parametrize(
    "accepted", [merged(BUILTIN, separate_engines(8, replicas=4, minReplicas=2)), BUILTIN, VERL], ids=str
)
def test_a_fixed_group_keeps_its_replicas(accepted: dict[str, Any]) -> None:
    assert count_pods({**accepted, "rolloutReplicas": 3}, accepted) == count_pods(accepted, accepted)


def test_a_running_job_can_change_it_and_not_the_bounds() -> None:
    assert validate_change(ELASTIC, {**ELASTIC, "rolloutReplicas": 6}) == ()
    (finding,) = validate_change(ELASTIC, merged(BUILTIN, elastic(maxReplicas=9)))
    assert finding.field == "spec.cluster"


def test_the_trainer_knows_the_bounds() -> None:
    spec = read_resolved_spec(build_resolved_spec(ELASTIC, None), {**ELASTIC, "rolloutReplicas": 6}).spec
    assert spec
    config = build_training_config(spec, Run("sum", "demo", "/runs/sum"))
    assert (config.rollout_workers, config.min_rollout_workers, config.max_rollout_workers) == (6, 2, 8)


@pytest.mark.parametrize(
    ("runtime", "text"),
    [
        (
            {"limits": [{"field": "spec.cluster.workers[].replicas", "max": 6}]},
            "spec.cluster.workers[1].maxReplicas: 8: is above the runtime's limit 6; use 6 or less",
        ),
        ({"maxPerJob": {"workers": 8}}, "spec.cluster.workers: 9 workers: is above the runtime's maximum of 8"),
        ({"maxPerJob": {"accelerators": 71}}, "spec.cluster.workers: 72 accelerators: is above"),
        ({"maxPerJob": {"workers": 9, "accelerators": 72}}, ""),
    ],
)
def test_limits_of_the_runtime_apply_to_the_largest_number(runtime: dict[str, Any], text: str) -> None:
    found = "\n".join(map(str, validate_job("sum", ELASTIC, runtime).findings))
    assert text in found if text else not found


def test_a_queue_of_kueue_may_admit_more_pods() -> None:
    queued = {**ELASTIC, "scheduling": {"queueName": "team-a"}}
    assert validate_job("sum", queued).findings == ()
    assert validate_job("sum", ELASTIC, queue_label="team-a").findings == ()
