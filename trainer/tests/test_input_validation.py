"""Rollout settings that are rejected before the run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from transformers import DeepseekV32Config, Glm4Config, GptOssConfig, Qwen3Config, Qwen3MoeConfig

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.input_validation import validate_engine, validate_rollout

MakeConfig = Callable[..., TrainingConfig]
VLLM: dict[str, Any] = {"engine": "vllm"}


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"tensorParallelSize": 2}, "tensorParallelSize: 2 requires rollout.engine: vllm"),
        ({"engineKwargs": {"swap_space": 1}}, "rollout.engineKwargs: vLLM options require"),
        ({**VLLM, "engineKwargs": {"dtype": "half"}}, r"engineKwargs.dtype: .* \(model.dtype\). Remove it"),
        ({**VLLM, "tensorParallelSize": 4}, "4 does not divide the 2 devices of a pod.* 2, or rollout.mode: separate"),
        ({**VLLM, "maxModelLen": 20}, "maxResponseLength = 21. Use at least 21"),
    ],
)
def test_an_unsupported_setting_is_rejected_with_a_fix(
    make_config: MakeConfig, rollout: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        validate_rollout(make_config(devicesPerWorker=2, rollout=rollout))


@pytest.mark.parametrize(
    "rollout", [{}, {**VLLM, "tensorParallelSize": 2}, {"staleness": {"maxSteps": 2}}, {"maxModelLen": 21}]
)
def test_supported_settings_are_accepted(make_config: MakeConfig, rollout: dict[str, Any]) -> None:
    validate_rollout(make_config(devicesPerWorker=2, rollout=rollout))


@pytest.mark.parametrize(("workers", "size", "accepted"), [(4, 4, True), (4, 8, True), (3, 4, False), (4, 3, False)])
def test_a_separate_engine_can_span_whole_pods(
    make_config: MakeConfig, workers: int, size: int, accepted: bool
) -> None:
    rollout = {**VLLM, "mode": "separate", "workerGroup": "rollout", "tensorParallelSize": size}
    config = make_config(devicesPerWorker=2, rolloutWorkers=workers, rolloutDevicesPerWorker=2, rollout=rollout)
    if accepted:
        validate_rollout(config)
    else:
        with pytest.raises(ValueError, match=f"{size} does not divide .* a multiple that divides {2 * workers}"):
            validate_rollout(config)


def test_a_family_that_vllm_does_not_run_on_cpus_is_rejected(make_config: MakeConfig) -> None:
    architecture = DeepseekV32Config()
    with pytest.raises(ValueError, match="vllm does not work with models of type deepseek_v32"):
        validate_engine(make_config(rollout=VLLM), architecture)
    validate_engine(make_config(), architecture)
    validate_engine(make_config(devicesPerWorker=1, rollout=VLLM), architecture)


def test_adapters_beside_experts_are_rejected_on_cpus(make_config: MakeConfig) -> None:
    model = {"lora": {"rank": 4, "targetModules": ["q_proj"], "syncAdapters": True}}
    with pytest.raises(ValueError, match=r"syncAdapters does not .* qwen3_moe: beside adapters, .* Remove it\."):
        validate_engine(make_config(model=model, rollout=VLLM), Qwen3MoeConfig())
    validate_engine(make_config(model=model, devicesPerWorker=1, rollout=VLLM), Qwen3MoeConfig())
    validate_engine(make_config(model=model, rollout=VLLM), Qwen3Config())


def test_adapters_on_a_layer_that_vllm_splits_are_rejected(make_config: MakeConfig) -> None:
    lora = {"rank": 4, "syncAdapters": True}
    with pytest.raises(
        ValueError, match=r"syncAdapters does not work with models of type glm4: vLLM takes gate_up_proj"
    ):
        validate_engine(make_config(model={"lora": lora}, devicesPerWorker=1, rollout=VLLM), Glm4Config())
    attention = {"lora": {**lora, "targetModules": ["q_proj", "o_proj"]}}
    validate_engine(make_config(model=attention, devicesPerWorker=1, rollout=VLLM), Glm4Config())


def test_a_family_whose_weights_vllm_does_not_get_is_rejected(make_config: MakeConfig) -> None:
    with pytest.raises(ValueError, match=r"does not work with models of type gpt_oss: .* Use transformers\."):
        validate_engine(make_config(devicesPerWorker=1, rollout=VLLM), GptOssConfig())
