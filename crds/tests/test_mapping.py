"""The mapping from verl's, ROLL's and launch scripts' settings to ours: complete, and true of the schema.

That it is true of verl's own config is in e2e/tests/test_verl_mapping.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlt_api.mapping import PATH, Setting, field, find, mapping, verl_roll_mapping
from rlt_api.schema import leaves
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.structure import WORDS_OF_OTHERS

ROOT = Path(__file__).parents[2]
MAPPED = mapping()
ALL = [*MAPPED.verl, *MAPPED.roll, *MAPPED.environment, *MAPPED.launch]

VERL_MULTI_NODE_GUIDE = """
data.train_files data.val_files data.train_batch_size data.max_prompt_length data.max_response_length
actor_rollout_ref.model.path actor_rollout_ref.model.enable_gradient_checkpointing
actor_rollout_ref.model.use_remove_padding actor_rollout_ref.actor.optim.lr
actor_rollout_ref.actor.ppo_mini_batch_size actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
actor_rollout_ref.actor.fsdp_config.param_offload actor_rollout_ref.actor.fsdp_config.optimizer_offload
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu actor_rollout_ref.rollout.tensor_model_parallel_size
actor_rollout_ref.rollout.name actor_rollout_ref.rollout.gpu_memory_utilization
actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu actor_rollout_ref.ref.fsdp_config.param_offload
critic.optim.lr critic.model.use_remove_padding critic.model.path critic.model.enable_gradient_checkpointing
critic.ppo_micro_batch_size_per_gpu critic.model.fsdp_config.param_offload
critic.model.fsdp_config.optimizer_offload algorithm.kl_ctrl.kl_coef trainer.critic_warmup trainer.logger
trainer.project_name trainer.experiment_name trainer.n_gpus_per_node trainer.val_before_train trainer.nnodes
trainer.save_freq trainer.test_freq trainer.total_epochs trainer.default_hdfs_dir trainer.default_local_dir
trainer.resume_mode
"""
"""The arguments of both scripts of verl's guide to training on several nodes."""

VERL_FAQ = """
ray_init.num_cpus ray_init.timeline_file trainer.wandb_proxy trainer.nnode ray_kwargs.ray_init.num_cpus
ray_kwargs.timeline_json_file actor_rollout_ref.actor.use_torch_compile
actor_rollout_ref.rollout.enable_chunked_prefill actor_rollout_ref.rollout.max_num_seqs
actor_rollout_ref.rollout.max_model_len actor_rollout_ref.rollout.enforce_eager
actor_rollout_ref.actor.fsdp_config.sharding_strategy actor_rollout_ref.ref.fsdp_config.sharding_strategy
actor_rollout_ref.actor.fsdp_config.cpu_offload actor_rollout_ref.ref.fsdp_config.cpu_offload
actor_rollout_ref.actor.fsdp_config.use_orig_params actor_rollout_ref.ref.fsdp_config.use_orig_params
actor_rollout_ref.ref.fsdp_config.optimizer_offload
"""
"""What its FAQ and the guides to its pitfalls name."""

ROLL_FAQ = """
rollout_batch_size num_return_sequences_in_group actor_train.device_mapping actor_infer.device_mapping
reference.device_mapping actor_train.training_args.gradient_accumulation_steps
actor_train.training_args.per_device_train_batch_size
actor_train.strategy_args.strategy_config.tensor_model_parallel_size
actor_train.strategy_args.strategy_config.pipeline_model_parallel_size
actor_train.strategy_args.strategy_config.context_parallel_size
actor_train.strategy_args.strategy_config.expert_model_parallel_size
system_envs profiler_output_dir lr_decay_steps
"""

VARIABLES = """
TRANSFORMERS_CACHE HF_HOME NCCL_DEBUG GPU_MAX_HW_QUEUES TORCH_NCCL_HIGH_PRIORITY NCCL_CHECKS_DISABLE NCCL_IB_HCA
NCCL_IB_GID_INDEX NCCL_CROSS_NIC CUDA_DEVICE_MAX_CONNECTIONS NCCL_PROTO RCCL_MSCCL_ENABLE TOKENIZERS_PARALLELISM
HSA_NO_SCRATCH_RECLAIM HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES HYDRA_FULL_ERROR HOST_UID HOST_GID
ip_head PYTHONUNBUFFERED WANDB_API_KEY RAY_ADDRESS RAY_DEBUG RAY_DEBUG_POST_MORTEM NCCL_IB_DISABLE NCCL_SOCKET_IFNAME
NCCL_IB_SL VLLM_ATTENTION_BACKEND RAY_PROFILING NVTE_TORCH_COMPILE
"""
"""Variables of verl's Slurm script for AMD and of all the guides."""


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.key)
def test_a_setting_has_fields_that_exist_or_a_reason(setting: Setting) -> None:
    assert [bool(setting.ours), bool(setting.reason), bool(setting.now)].count(True) == 1
    named = [found[0] for found in PATH.finditer(f"{setting.reason} {setting.note}")]
    assert [path for path in [*setting.ours, *named] if field(path) is None] == []


@pytest.mark.parametrize("key", [*VERL_MULTI_NODE_GUIDE.split(), *VERL_FAQ.split()])
def test_what_verls_guides_set_is_there(key: str) -> None:
    assert find(key, MAPPED.verl)


@pytest.mark.parametrize("key", ROLL_FAQ.split())
def test_what_rolls_guide_sets_is_there(key: str) -> None:
    assert find(key, MAPPED.roll)


@pytest.mark.parametrize("name", VARIABLES.split())
def test_what_scripts_export_is_there(name: str) -> None:
    assert find(name, MAPPED.environment)


def test_what_verl_calls_it_today_has_a_field() -> None:
    renamed = [setting for setting in MAPPED.verl if setting.now]
    assert renamed
    for setting in renamed:
        today = find(setting.now, MAPPED.verl)
        assert today, setting.key
        assert today.ours, setting.key


def test_a_key_itself_goes_before_its_group() -> None:
    found = [find(f"critic.{key}", MAPPED.verl) for key in ("cliprange_value", "grad_clip")]
    assert [setting and setting.key for setting in found] == ["critic.cliprange_value", "critic.*"]


def test_the_validator_knows_the_same_words() -> None:
    for word, path in WORDS_OF_OTHERS.items():
        alike = [setting for setting in ALL if f"_{setting.key}".replace(".", "_").endswith(f"_{word}")]
        assert not alike or path in {ours for setting in alike for ours in setting.ours}, word


def test_what_descriptions_say_of_verls_defaults_is_so() -> None:
    claims = {
        path: re.search(r"\(verl: (.+?)\.\)", schema["description"]) for path, schema in leaves(RLTrainingJobSpec)
    }
    assert any(claims.values())
    for path, claim in claims.items():
        if claim:
            assert json.loads(claim[1]) in [setting.default for setting in MAPPED.verl if path in setting.ours], path


def test_the_version_is_the_one_that_is_pinned() -> None:
    pins = (ROOT / "requirements/verl-config.txt").read_text()
    assert re.search(r"^verl==(\S+)", pins, re.MULTILINE)[1] == MAPPED.verl_version  # type: ignore[index]


def test_the_page_has_a_row_for_each_setting() -> None:
    page = verl_roll_mapping().splitlines()
    assert sum(line.startswith("| `") for line in page) == len(ALL)
    assert "| `trainer.nnode` |  | `spec.cluster.workers[].replicas` |  | Today `trainer.nnodes`. |" in page
