"""The mapping from settings of other programs to fields: complete, and consistent with the schema.

e2e/tests/test_verl_mapping.py compares it with verl's own config.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import openrlhf_jobs
import pytest
from verl_jobs import RUN

from rlt_api.frameworks import foreign_names
from rlt_api.frameworks.mapping import PATH, Setting, build_mapping_page, find, find_field, load_mapping
from rlt_api.frameworks.openrlhf.settings import list_options
from rlt_api.schema.model_schema import walk_leaves
from rlt_api.spec.job_spec import RLTrainingJobSpec

ROOT = Path(__file__).parents[2]
MAPPED = load_mapping()
ALL = [*MAPPED.verl, *MAPPED.openrlhf, *MAPPED.roll, *MAPPED.environment, *MAPPED.launch]

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
"""The arguments of both scripts in verl's multi-node guide."""

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
"""Settings in verl's FAQ and in guides to common errors."""

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
"""Variables in verl's Slurm script for AMD and in all guides."""


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.key)
def test_setting_has_existing_fields_or_a_reason(setting: Setting) -> None:
    assert [bool(setting.fields), bool(setting.reason), bool(setting.renamed)].count(True) == 1
    named = [found[0] for found in PATH.finditer(f"{setting.reason} {setting.note}")]
    assert [path for path in [*setting.fields, *named] if find_field(path) is None] == []


@pytest.mark.parametrize("key", [*VERL_MULTI_NODE_GUIDE.split(), *VERL_FAQ.split()])
def test_settings_of_verls_guides_are_mapped(key: str) -> None:
    assert find(key, MAPPED.verl)


@pytest.mark.parametrize("key", ROLL_FAQ.split())
def test_settings_of_rolls_guide_are_mapped(key: str) -> None:
    assert find(key, MAPPED.roll)


def test_openrlhfs_table_has_exactly_the_options_that_the_operator_writes() -> None:
    jobs = [openrlhf_jobs.resolve(changes) for changes in openrlhf_jobs.TABLE.values()]
    written = {name for spec in jobs for name in list_options(spec, RUN)}
    found = {name: find(name, MAPPED.openrlhf) for name in written}
    assert [name for name, setting in found.items() if setting is None] == []
    assert {setting.key for setting in found.values() if setting} == {each.key for each in MAPPED.openrlhf}


@pytest.mark.parametrize("name", VARIABLES.split())
def test_variables_of_scripts_are_mapped(name: str) -> None:
    assert find(name, MAPPED.environment)


def test_renamed_setting_of_verl_has_a_field() -> None:
    renamed = [setting for setting in MAPPED.verl if setting.renamed]
    assert renamed
    for setting in renamed:
        current = find(setting.renamed, MAPPED.verl)
        assert current, setting.key
        assert current.fields, setting.key


def test_exact_key_precedes_its_group() -> None:
    found = [find(f"critic.{key}", MAPPED.verl) for key in ("cliprange_value", "grad_clip")]
    assert [setting and setting.key for setting in found] == ["critic.cliprange_value", "critic.*"]


def test_foreign_names_of_the_validation_match_the_mapping() -> None:
    for name, path in foreign_names.FIELDS.items():
        matching = [setting for setting in ALL if f"_{setting.key}".replace(".", "_").endswith(f"_{name}")]
        assert not matching or path in {field for setting in matching for field in setting.fields}, name


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("spec.training.ppo_mini_batch_size", "spec.training.ppoMiniBatchSize"),
        ("spec.preflight.enabled", None),
        ("spec.distillation.enabled", "spec.algorithm.distillation"),
    ],
)
def test_a_foreign_name_of_one_word_counts_only_below_its_block(path: str, field: str | None) -> None:
    assert foreign_names.find_field(path.rpartition(".")[2], path) == field


def test_verl_defaults_in_descriptions_are_correct() -> None:
    stated = {
        path: re.search(r"\(verl: (.+?)\.\)", schema["description"]) for path, schema in walk_leaves(RLTrainingJobSpec)
    }
    assert any(stated.values())
    for path, default in stated.items():
        if default:
            assert json.loads(default[1]) in [setting.default for setting in MAPPED.verl if path in setting.fields], (
                path
            )


def test_version_is_the_pinned_one() -> None:
    pins = (ROOT / "requirements/verl-config.txt").read_text()
    assert re.search(r"^verl==(\S+)", pins, re.MULTILINE)[1] == MAPPED.verl_version  # type: ignore[index]


def test_page_has_a_row_for_each_setting() -> None:
    page = build_mapping_page().splitlines()
    assert sum(line.startswith("| `") for line in page) == len(ALL)
    assert "| `trainer.nnode` |  | `spec.cluster.workers[].replicas` |  | Renamed to `trainer.nnodes`. |" in page
