"""Defaults that depend on a job's accelerators: below the runtime's, kept in the resolved spec."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.blocks.rollout import Rollout
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.resolved_spec import build_resolved_spec, read_resolved_spec
from rlt_api.validation.validate import validate_job

GPU = {"resourceName": "nvidia.com/gpu", "count": 8}
CHOICES = {
    ("model", "dtype"): ("float32", "bfloat16"),
    ("model", "enableGradientCheckpointing"): (False, True),
    ("model", "useRemovePadding"): (False, True),
    ("rollout", "enforceEager"): (True, False),
    ("rollout", "freeCacheEngine"): (False, True),
    ("training", "useTorchCompile"): (False, True),
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
def test_gpus_have_separate_defaults(resource: str) -> None:
    on_cpu = resolve(make_job(None))
    on_gpu = resolve(make_job({**GPU, "resourceName": resource}))
    for (block, field), expected in CHOICES.items():
        assert (on_cpu[block][field], on_gpu[block][field]) == expected, f"{block}.{field}"


@pytest.mark.parametrize("term", [{"klLossCoef": 0.01}, {"klInReward": {}}, {"dpo": {}}, {"klLossCoef": 0}], ids=str)
def test_a_reference_is_offloaded_on_gpus(term: dict[str, Any]) -> None:
    has_reference = term != {"klLossCoef": 0}
    for accelerator in (None, GPU):
        reference = resolve(make_job(accelerator, algorithm=term))["training"]["reference"]
        assert bool(reference and reference["paramOffload"]) == (has_reference and accelerator is not None)
    kept = {"totalSteps": 1, "trainBatchSize": 64, "reference": {"paramOffload": False}}
    assert not resolve(make_job(GPU, algorithm=term, training=kept))["training"]["reference"]["paramOffload"]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ({}, True),
        ({"model": {"path": "/models/Qwen3-0.6B", "useLiger": True}}, False),
        (
            {"model": {"path": "/models/Qwen3-VL-2B"}, "data": {"files": ["/data/a.parquet"], "imageKey": "images"}},
            False,
        ),
        ({"training": {"totalSteps": 1, "useTorchCompile": False}}, False),
        ({"framework": {"type": "verl"}}, False),
    ],
    ids=str,
)
def test_the_builtin_trainer_compiles_on_gpus_what_can_be_compiled(blocks: dict[str, Any], expected: bool) -> None:
    assert resolve(make_job(GPU, **blocks))["training"]["useTorchCompile"] == expected


def micro_batches(*accelerators: dict[str, Any] | None, **blocks: Any) -> tuple[bool, int | None]:
    training = resolve(make_job(*accelerators, **blocks))["training"]
    return training["useDynamicBsz"], training["ppoMaxTokenLenPerDevice"]


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, (True, 16_384)),
        ({"ppoMaxTokenLenPerDevice": 9216}, (True, 9216)),
        ({"useDynamicBsz": True, "ppoMicroBatchSizePerDevice": 8}, (True, 16_384)),
        ({"useDynamicBsz": False}, (False, None)),
        ({"ppoMicroBatchSizePerDevice": 8}, (False, None)),
        ({"logProbMicroBatchSizePerDevice": 8}, (False, None)),
        ({"reference": {"logProbMicroBatchSizePerDevice": 8}}, (False, None)),
    ],
)
def test_micro_batches_have_tokens_on_gpus_unless_a_number_of_responses_is_given(
    training: dict[str, Any], expected: tuple[bool, int | None]
) -> None:
    assert micro_batches(GPU, training={"totalSteps": 1, "trainBatchSize": 64, **training}) == expected


@pytest.mark.parametrize(
    ("data", "training", "algorithm", "tokens"),
    [
        ({}, {}, {}, 16_384),
        ({"maxResponseLength": 32_768}, {}, {}, 33_280),
        ({"maxResponseLength": 32_768}, {"contextParallelSize": 2}, {}, 16_640),
        ({"maxPromptLength": 1, "maxResponseLength": 40_000}, {"contextParallelSize": 2}, {}, 20_001),
        ({"maxResponseLength": 32_768}, {"contextParallelSize": 4}, {}, 16_384),
        ({"maxResponseLength": 16_384}, {}, {"dpo": {}}, 33_792),
    ],
)
def test_the_limit_of_tokens_holds_the_longest_sequence(
    data: dict[str, Any], training: dict[str, Any], algorithm: dict[str, Any], tokens: int
) -> None:
    """A limit of one device is multiplied by the devices that share a sequence. A pair is in one micro-batch."""
    given = {"files": ["/mnt/rlt/pairs.jsonl"]} if algorithm else {"preset": "gsm8k", "path": "/data"}
    job = make_job(
        GPU,
        data={**given, "maxPromptLength": 512, **data},
        training={"totalSteps": 1, "trainBatchSize": 64, **training},
        algorithm=algorithm,
    )
    assert validate_job("job", job).findings == ()
    assert micro_batches(GPU, **{name: job[name] for name in ("data", "training", "algorithm")}) == (True, tokens)


def test_a_number_of_responses_in_the_critic_or_the_runtime_counts_too() -> None:
    critic = {"advEstimator": "gae", "critic": {"ppoMicroBatchSizePerDevice": 4}}
    assert micro_batches(GPU, algorithm=critic) == (False, None)
    runtime = {"defaults": {"training": {"ppoMicroBatchSizePerDevice": 4}}}
    assert not resolve(make_job(GPU), runtime)["training"]["useDynamicBsz"]


@pytest.mark.parametrize("framework", ["verl", "openrlhf", "roll"])
def test_other_frameworks_keep_their_micro_batches(framework: str) -> None:
    assert micro_batches(GPU, framework={"type": framework}) == (False, None)


def test_micro_batches_have_responses_on_cpus() -> None:
    assert micro_batches(None) == (False, None)


def test_a_wrong_type_in_a_runtime_is_reported() -> None:
    runtime = {"defaults": {"data": {"maxResponseLength": "long"}}}
    job = make_job(GPU, data={"preset": "gsm8k", "path": "/data"})
    assert [each.field for each in validate_job("job", job, runtime).findings] == ["spec.data.maxResponseLength"]


@pytest.mark.parametrize("accelerators", [(GPU, None), ({"resourceName": "habana.ai/gaudi", "count": 8},)])
def test_a_group_without_a_supported_gpu_has_the_defaults_of_cpus(
    accelerators: tuple[dict[str, Any] | None, ...],
) -> None:
    resolved = resolve(make_job(*accelerators))
    assert all(resolved[block][field] == on_cpu for (block, field), (on_cpu, _) in CHOICES.items())


def test_the_jobs_and_its_runtimes_values_override_them() -> None:
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
    """Neither the defaults of GPUs nor of a runtime, which the job could not remove."""
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
