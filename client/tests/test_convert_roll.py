"""ROLL's configs as jobs of ROLL: the rendered config of the job has the settings of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from roll_jobs import TABLE, resolve
from verl_jobs import RUN

from rlt.convert.convert import convert
from rlt.convert.draft import ConvertError
from rlt.convert.roll import resolve_references
from rlt.convert.roll_job import OF_THE_RUN
from rlt_api.frameworks.roll.settings import build_config
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import parse_devices

SOURCE = """
exp_name: rlvr
num_gpus_per_node: 8
pretrain: Qwen/Qwen3-8B
max_steps: 50
save_steps: 10
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 1024
response_length: 3072
adv_estimator: reinforce
whiten_advantages: true
norm_mean_type: batch
advantage_clip: 2.0
actor_train:
  model_args: {dtype: bf16}
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 2, gradient_accumulation_steps: 32}
  data_args:
    file_name: [/mnt/rlt/a.jsonl]
    messages: messages
    domain_interleave_probs: {ifeval: 0.5, math_rule: 0.5}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 2, use_distributed_optimizer: true}
  device_mapping: list(range(0,16))
actor_infer:
  generating_args: {max_new_tokens: "${response_length}", top_p: 0.99}
  strategy_args: {strategy_name: vllm, strategy_config: {gpu_memory_utilization: 0.8, block_size: 16}}
  device_mapping: list(range(0,12))
reference:
  strategy_args: {strategy_name: megatron_infer, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(0,16))
rewards:
  ifeval: {worker_cls: team.IfEval, tag_included: [ifeval], world_size: 4}
  math_rule: {worker_cls: team.Math, tag_included: [aime], world_size: 8}
"""


def read_spec(text: str) -> RLTrainingJobSpec:
    """The spec of the converted job, with an accelerator of NVIDIA."""
    spec = convert(text, "source.yaml", "roll").manifest["spec"]
    return RLTrainingJobSpec.model_validate(add_accelerator_defaults(spec), by_alias=True, by_name=False)


def list_missing(wanted: Mapping[str, Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings of `wanted` that `given` does not have."""
    missing = []
    for key, value in wanted.items():
        other = given.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            missing += list_missing(value, other, f"{prefix}{key}.")
        elif value != other and not (key == "device_mapping" and parse_devices(value) == parse_devices(other)):
            missing.append(f"{prefix}{key}: {value} {other}")
    return missing


def test_all_settings_of_a_config_reach_the_job() -> None:
    config = yaml.safe_load(SOURCE)
    wanted = {key: value for key, value in resolve_references(config, config).items() if key not in OF_THE_RUN}
    spec = read_spec(SOURCE)
    rendered: Any = build_config(spec, RUN)
    assert list_missing(wanted, rendered) == []
    assert set(rendered["rewards"]) == set(rendered["actor_train"]["data_args"]["domain_interleave_probs"])
    assert (spec.training.ppo_mini_batch_size, spec.cluster.workers[0].replicas) == (64, 2)
    assert "advantage_clip=2.0" in spec.framework.overrides
    assert not any(each.startswith("rollout_batch_size") for each in spec.framework.overrides)


@pytest.mark.parametrize("name", TABLE)
def test_a_rendered_job_converts_to_one_with_the_same_config(name: str) -> None:
    config = build_config(resolve(TABLE[name]), RUN)
    rendered = build_config(read_spec(yaml.safe_dump(config)), RUN)
    assert list_missing({key: value for key, value in config.items() if key not in OF_THE_RUN}, rendered) == []


def test_contradictions_and_unknown_keys_are_comments() -> None:
    text = SOURCE.replace("rollout_batch_size: 64", "rollout_batch_size: 60").replace("save_steps", "save_step")
    found = {each.what: each.why for each in convert(text, "source.yaml", "roll").left_out}
    assert "is not divisible by the 8 data-parallel shares" in found["rollout_batch_size 60"]
    assert "did you mean save_steps?" in found["save_step 10"]


def test_other_sources_are_rejected() -> None:
    with pytest.raises(ConvertError, match="is not a config of ROLL"):
        convert("python3 -m verl.trainer.main_ppo a=1", "run.sh", "roll")
