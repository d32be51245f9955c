"""The engine options of vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.blocks.rollout import Rollout
from rlt_api.spec.engine_options import SET_BY
from rlt_trainer.rollout.vllm_adapters import Adapters
from rlt_trainer.rollout.vllm_options import build_engine_options, check_engine_kwargs


def options(rollout: dict[str, Any], *, on_gpu: bool = False) -> dict[str, Any]:
    return build_engine_options(
        "/model",
        dtype="float32",
        rollout=Rollout.model_validate(rollout),
        max_model_len=96,
        seed=7,
        trust_remote_code=False,
        on_gpu=on_gpu,
    )


def test_unset_fields_use_the_defaults_of_vllm() -> None:
    given = options({})
    assert not {"max_num_seqs", "max_num_batched_tokens", "enable_sleep_mode"} & set(given)
    assert "enable_chunked_prefill" not in options({}, on_gpu=True)
    assert given["max_model_len"] == 96
    assert given["distributed_executor_backend"] == "uni"


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("maxModelLen", 200, "max_model_len"),
        ("maxNumSeqs", 16, "max_num_seqs"),
        ("maxNumBatchedTokens", 512, "max_num_batched_tokens"),
        ("gpuMemoryUtilization", 0.3, "gpu_memory_utilization"),
        ("enforceEager", False, "enforce_eager"),
    ],
)
def test_a_field_sets_its_option(field: str, value: object, option: str) -> None:
    assert options({field: value})[option] == value


@pytest.mark.parametrize(("on_gpu", "option"), [(True, True), (False, False)])
def test_prompts_are_split_on_gpus_alone(on_gpu: bool, option: bool) -> None:
    assert options({"enableChunkedPrefill": True}, on_gpu=on_gpu)["enable_chunked_prefill"] is option


def test_engine_kwargs_are_passed_to_vllm() -> None:
    assert options({"engineKwargs": {"swap_space": 8}})["swap_space"] == 8


def test_images_get_the_tokenizer_and_are_normalized_by_the_trainer() -> None:
    common: Any = {"dtype": "bfloat16", "max_model_len": 96, "seed": 7, "trust_remote_code": False, "on_gpu": False}
    given = build_engine_options("/model", rollout=Rollout(), has_images=True, **common)
    assert given["skip_tokenizer_init"] is False
    assert given["mm_device_do_normalize"] is False
    assert "mm_device_do_normalize" not in options({})
    assert options({})["skip_tokenizer_init"] is True


@pytest.mark.parametrize("given", [{"stop": ["</answer>"]}, {"multiTurn": {"agent": {"name": "my_agent:solve"}}}])
def test_stop_strings_and_agents_get_the_tokenizer(given: dict[str, Any]) -> None:
    assert options(given)["skip_tokenizer_init"] is False


def test_a_float32_head_is_added_to_the_overrides_of_the_config() -> None:
    rollout = Rollout.model_validate({"engineKwargs": {"hf_overrides": {"rope_theta": 1e6}}})
    common: Any = {"dtype": "bfloat16", "max_model_len": 96, "seed": 7, "trust_remote_code": False, "on_gpu": False}
    given = build_engine_options("/model", rollout=rollout, float32_head=True, **common)
    assert given["hf_overrides"] == {"rope_theta": 1e6, "head_dtype": "float32"}
    assert "hf_overrides" not in options({})


@pytest.mark.parametrize("name", sorted(SET_BY))
def test_engine_kwargs_that_the_trainer_sets_are_rejected_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"rollout.engineKwargs.{name}: the trainer sets this option"):
        check_engine_kwargs(Rollout(engine_kwargs={name: 1}))


def test_adapters_are_applied_to_their_layers_and_the_weights_below_come_from_the_files() -> None:
    common: Any = {"dtype": "bfloat16", "max_model_len": 96, "seed": 7, "trust_remote_code": False, "on_gpu": False}
    given = build_engine_options("/model", rollout=Rollout(), adapters=Adapters(9, ("q_proj",)), **common)
    assert given["load_format"] == "auto"
    assert given["max_lora_rank"] == 16
    assert given["lora_target_modules"] == ["q_proj"]
    assert set(given) <= set(SET_BY)
    assert options({})["load_format"] == "dummy"


def test_an_evaluation_without_training_loads_the_weights_of_the_files() -> None:
    common: Any = {"dtype": "bfloat16", "max_model_len": 96, "seed": 7, "trust_remote_code": False, "on_gpu": False}
    given = build_engine_options("/model", rollout=Rollout(), from_files=True, **common)
    assert given == {**build_engine_options("/model", rollout=Rollout(), **common), "load_format": "auto"}


def test_experts_are_reported_on_request() -> None:
    common: Any = {"dtype": "bfloat16", "max_model_len": 96, "seed": 7, "trust_remote_code": False, "on_gpu": True}
    given = build_engine_options("/model", rollout=Rollout(), reports_routes=True, **common)
    assert given == {
        **build_engine_options("/model", rollout=Rollout(), **common),
        "enable_return_routed_experts": True,
    }


def test_the_linear_layers_are_quantized_with_a_scale_for_each_output() -> None:
    """vllm/config/quantization.py, vLLM 0.32."""
    from vllm.config.quantization import resolve_quantization_config
    from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticChannelSym

    given = options({"quantization": "fp8"})
    resolved = resolve_quantization_config(given["quantization"], given["quantization_config"])
    assert resolved is not None
    assert resolved.linear is not None
    assert resolved.linear.weight == kFp8StaticChannelSym
    assert resolved.moe is None
    assert not {"quantization", "quantization_config"} & set(options({}))


@pytest.mark.parametrize("on_gpu", [True, False])
def test_every_option_of_the_trainer_is_rejected_in_engine_kwargs(on_gpu: bool) -> None:
    everything: dict[str, Any] = {
        "maxNumSeqs": 1,
        "maxNumBatchedTokens": 1,
        "enableChunkedPrefill": True,
        "freeCacheEngine": True,
    }
    everything |= {"tensorParallelSize": 2, "quantization": "fp8", "speculativeConfig": {}}
    assert set(options(everything, on_gpu=on_gpu)) <= set(SET_BY)


def test_the_minimum_of_a_lookup_is_its_maximum_by_default() -> None:
    given = options({"speculativeConfig": {"promptLookupMax": 4}})["speculative_config"]
    expected = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 4}
    assert given == expected
    assert "speculative_config" not in options({})


def test_sleep_mode_is_only_set_on_a_gpu() -> None:
    assert options({"freeCacheEngine": True}, on_gpu=True)["enable_sleep_mode"] is True
    assert "enable_sleep_mode" not in options({"freeCacheEngine": True}, on_gpu=False)
