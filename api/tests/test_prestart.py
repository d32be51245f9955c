"""The processes that Ray starts with a worker pod of rlt's trainer: as many as the pod has actors."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import BUILTIN

from rlt_api.frameworks.builtin.prestart import count_actors, list_worker_variables
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group, training_group

SEPARATE = {"mode": "separate", "workerGroup": "rollout"}


def build_spec(devices: int, *, rollout: dict[str, Any], **blocks: Any) -> RLTrainingJobSpec:
    accelerator = {"accelerator": {"resourceName": "nvidia.com/gpu", "count": devices}} if devices else {}
    group = {"replicas": 2, "resources": {"cpu": "96", "memory": "512Gi"}, **accelerator}
    groups = [{**group, "name": "train"}, *([{**group, "name": "rollout"}] if rollout.get("workerGroup") else [])]
    cluster = {**BUILTIN["cluster"], "workers": groups}
    return RLTrainingJobSpec.model_validate({**BUILTIN, "cluster": cluster, "rollout": rollout, **blocks})


@pytest.mark.parametrize(
    ("devices", "tensor_parallel_size", "colocated", "generating"),
    [
        (0, 1, 2, 1),
        (8, 1, 16, 8),
        (8, 2, 12, 4),
        (8, 8, 9, 1),
        (8, 16, 9, 1),  # a pod has one part of an engine
    ],
)
def test_a_pod_has_a_process_for_each_of_its_actors(
    devices: int, tensor_parallel_size: int, colocated: int, generating: int
) -> None:
    size = {"tensorParallelSize": tensor_parallel_size}
    together = build_spec(devices, rollout=size)
    assert count_actors(together, training_group(together)) == colocated
    apart = build_spec(devices, rollout={**SEPARATE, **size})
    engines = rollout_group(apart)
    assert engines
    assert count_actors(apart, engines) == generating
    assert count_actors(apart, training_group(apart)) == max(1, devices)


def test_preferences_have_no_engines() -> None:
    spec = build_spec(8, rollout={}, algorithm={"dpo": {}})
    assert count_actors(spec, training_group(spec)) == 8


def test_an_evaluation_without_training_has_engines_alone() -> None:
    spec = build_spec(8, rollout={"tensorParallelSize": 2}, evaluateOnly={})
    assert count_actors(spec, training_group(spec)) == 4


def test_the_cpus_of_a_pod_do_not_add_processes() -> None:
    spec = build_spec(8, rollout={})
    variables = list_worker_variables(spec, training_group(spec))
    assert variables["OMP_NUM_THREADS"] == "12"
    assert variables["RAY_worker_maximum_startup_concurrency"] == "16"
    assert variables["RAY_num_workers_soft_limit"] == "16"


@pytest.mark.parametrize(("policy", "expected"), [("Recreate", None), ("InPlace", "1")])
def test_actors_request_their_successors_for_a_program_on_the_same_pods(policy: str, expected: str | None) -> None:
    blocks = {"failurePolicy": {"restartPolicy": policy}, "storage": {"claimName": "runs"}}
    spec = build_spec(8, rollout={}, **blocks)
    assert list_worker_variables(spec, training_group(spec)).get("RLT_SUCCESSORS") == expected
