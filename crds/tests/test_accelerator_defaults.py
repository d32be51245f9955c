"""Defaults that depend on the accelerators of a job: below those of the runtime, kept in the resolved spec."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.blocks.rollout import Rollout
from rlt_api.resolved_spec import build_resolved_spec, read_resolved_spec
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.validation import validate_job

GPU = {"resourceName": "nvidia.com/gpu", "count": 8}
CHOICES = {
    ("model", "dtype"): ("float32", "bfloat16"),
    ("model", "enableGradientCheckpointing"): (False, True),
    ("model", "useRemovePadding"): (False, True),
    ("rollout", "enforceEager"): (True, False),
    ("rollout", "freeCacheEngine"): (False, True),
}
"""Block and field -> default on CPUs and on GPUs."""


def make_job(*accelerators: dict[str, Any] | None, **blocks: Any) -> dict[str, Any]:
    groups = [
        {
            "name": f"group-{number}",
            "resources": {"cpu": "8", "memory": "256Gi"},
            **({"accelerator": each} if each else {}),
        }
        for number, each in enumerate(accelerators)
    ]
    job: dict[str, Any] = {
        "model": {"path": "/models/Qwen3-0.6B"},
        "data": {"preset": "gsm8k", "path": "/data", "maxPromptLength": 512, "maxResponseLength": 512},
        "training": {"totalSteps": 1, "trainBatchSize": 64},
        "cluster": {"image": "example.com/trainer", "workers": groups},
    }
    return {**job, **blocks}


def resolve(job: dict[str, Any], runtime: dict[str, Any] | None = None) -> dict[str, Any]:
    return build_resolved_spec(job, runtime)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "amd.com/gpu"])
def test_gpus_have_defaults_of_their_own(resource: str) -> None:
    on_cpu, on_gpu = resolve(make_job(None)), resolve(make_job({**GPU, "resourceName": resource}))
    for (block, field), expected in CHOICES.items():
        assert (on_cpu[block][field], on_gpu[block][field]) == expected, f"{block}.{field}"


@pytest.mark.parametrize("accelerators", [(GPU, None), ({"resourceName": "habana.ai/gaudi", "count": 8},)])
def test_a_group_without_a_supported_gpu_has_the_defaults_of_cpus(
    accelerators: tuple[dict[str, Any] | None, ...],
) -> None:
    resolved = resolve(make_job(*accelerators))
    assert all(resolved[block][field] == on_cpu for (block, field), (on_cpu, _) in CHOICES.items())


def test_values_of_the_job_and_of_its_runtime_override_them() -> None:
    runtime = {
        "nodePools": [{"name": "h100", "accelerator": GPU, "resources": {"cpu": "8", "memory": "256Gi"}}],
        "defaults": {"model": {"useRemovePadding": False}, "rollout": {"enforceEager": True}},
    }
    job = make_job(None, model={"path": "/models/Qwen3-0.6B", "dtype": "float32"})
    resolved = resolve({**job, "cluster": {"image": "example.com/trainer"}}, runtime)
    assert resolved["model"]["dtype"] == "float32"
    assert resolved["model"]["useRemovePadding"] is False
    assert resolved["rollout"]["enforceEager"] is True
    assert resolved["model"]["enableGradientCheckpointing"] is True


def test_separate_engines_keep_their_memory() -> None:
    rollout = {"mode": "separate", "workerGroup": "group-1"}
    resolved = resolve(make_job(GPU, GPU, rollout=rollout))
    assert not resolved["rollout"]["freeCacheEngine"]
    assert not resolved["rollout"]["enforceEager"]
    given = resolve(make_job(GPU, GPU, rollout={**rollout, "freeCacheEngine": True}))
    assert given["rollout"]["freeCacheEngine"]


def test_a_critic_has_them_and_none_is_added() -> None:
    assert resolve(make_job(GPU))["algorithm"]["critic"] is None
    critic = resolve(make_job(GPU, algorithm={"advEstimator": "gae", "critic": {}}))["algorithm"]["critic"]
    assert critic["useRemovePadding"]
    assert critic["enableGradientCheckpointing"]


def test_a_command_and_a_missing_model_get_none() -> None:
    job = make_job(GPU)
    del job["model"]
    assert any(each.field == "spec.model" for each in validate_job("job", job).findings)
    command = {"framework": {"type": "command", "command": ["python"]}, "cluster": job["cluster"]}
    assert not validate_job("job", command).findings


def test_a_kept_spec_of_an_earlier_version_does_not_change() -> None:
    kept = RLTrainingJobSpec.model_validate(make_job(GPU)).model_dump(mode="json", by_alias=True)
    spec = read_resolved_spec(kept, make_job(GPU)).spec
    assert spec is not None
    assert spec.model is not None
    assert spec.model.dtype == "float32"
    assert not spec.rollout.free_cache_engine


def test_a_job_that_trains_on_pairs_gets_no_defaults_for_its_engines() -> None:
    """Neither those of GPUs nor those of a runtime, which the job could not remove."""
    data = {"files": ["/mnt/rlt/pairs.jsonl"]}
    job = make_job(GPU, data=data, algorithm={"dpo": {}})
    defaults = {
        "rollout": {"gpuMemoryUtilization": 0.7},
        "algorithm": {"klLossCoef": 0.01},
        "rewards": [{"name": "exact"}],
        "training": {"learningRate": 3e-6},
    }
    found = validate_job("job", job, {"defaults": defaults})
    assert found.findings == ()
    assert found.spec is not None
    assert found.spec.training.learning_rate == 3e-6
    assert (found.spec.rollout, found.spec.rewards) == (Rollout(), [])
