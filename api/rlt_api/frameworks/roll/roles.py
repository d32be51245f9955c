"""The roles in the config of ROLL's RLVR pipeline, each with its model, strategy, batch sizes and devices.

Keys and defaults: roll/configs/worker_config.py, training_args.py, generating_args.py and
roll/pipeline/rlvr/rlvr_config.py in ROLL 0.3.0. Options of strategies: roll/distributed/strategy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from rlt_api.blocks.algorithm import Critic
from rlt_api.blocks.data import Data
from rlt_api.blocks.evaluation import Evaluation
from rlt_api.blocks.model import Model
from rlt_api.frameworks.roll.values import Settings, escape, get_block, merge
from rlt_api.frameworks.validation_set import list_files
from rlt_api.spec.engine_options import build_speculative_option
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import count_shares, parse_devices, read_strategy

DOMAIN = "math_rule"
"""The domain of all rows: ROLL's for tags that no reward has (update_dataset_domain in rlvr_pipeline.py)."""
MATH_REWARD = "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker"
SCHEDULERS = {"constant": "constant_with_warmup", "cosine": "cosine", "linear": "linear"}
"""training.lrSchedule.type -> a name in transformers."""
DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
"""model.dtype -> model_args.dtype."""


def place_roles(spec: RLTrainingJobSpec) -> tuple[list[int], list[int]]:
    """The devices that train and the devices that generate: all, or in rollout.mode separate one group for each.

    ROLL numbers the devices of all nodes. It does not distinguish the groups, so that only their sizes count.
    """
    groups = spec.cluster.workers
    rollout = spec.rollout
    sizes = [group.replicas * (group.accelerator.count if group.accelerator else 1) for group in groups]
    total = list(range(sum(sizes)))
    if rollout.mode == "colocated":
        return total, total
    generating = sum(size for size, group in zip(sizes, groups, strict=True) if group.name == rollout.worker_group)
    return total[: len(total) - generating], total[len(total) - generating :]


def build_actor(
    spec: RLTrainingJobSpec,
    model: Model,
    data: Data,
    devices: list[int],
    chosen: Mapping[str, JsonValue],
    domains: Sequence[str],
) -> Settings:
    """Build the role that trains the policy."""
    training = spec.training
    schedule = spec.training.lr_schedule
    devices = _choose_devices(chosen, devices)
    role: Settings = {
        "model_args": {**_build_model(spec, model), **_build_lora(model)},
        "training_args": {
            "learning_rate": training.learning_rate,
            "lr_scheduler_type": SCHEDULERS[schedule.type if schedule else "constant"],
            "warmup_steps": schedule.warmup_steps if schedule else 0,
            **_build_optimizer(spec),
        },
        "data_args": {
            "template": "native",  # the tokenizer's
            "messages": data.prompt_key,
            "file_name": [escape(path) for path in data.files or []],
            "domain_interleave_probs": {each: 1 / len(domains) for each in domains},
            "preprocessing_num_workers": 8,
        },
        "strategy_args": _build_training_strategy(spec, len(devices), chosen),
        "device_mapping": _write_devices(devices),
        "infer_batch_size": training.log_prob_micro_batch_size_per_device or training.ppo_micro_batch_size_per_device,
        "backend_timeout": _count_minutes(spec),
    }
    sizes = _divide_batch(spec, merge(role, chosen), len(devices), training.ppo_micro_batch_size_per_device)
    return merge(role, {"training_args": sizes})


def _build_optimizer(spec: RLTrainingJobSpec) -> Settings:
    first, second = spec.training.betas
    return {"weight_decay": spec.training.weight_decay, "adam_beta1": first, "adam_beta2": second}


def _build_model(spec: RLTrainingJobSpec, model: Model) -> Settings:
    return {
        "dtype": DTYPES[model.dtype],
        "disable_gradient_checkpointing": not model.enable_gradient_checkpointing,
        "ulysses_size": spec.training.context_parallel_size,
    }


def _build_lora(model: Model) -> Settings:
    if model.lora is None:
        return {}
    targets = ",".join(model.lora.target_modules)
    return {"lora_rank": model.lora.rank, "lora_alpha": int(model.lora.alpha), "lora_target": targets}


def _build_training_strategy(
    spec: RLTrainingJobSpec, devices: int, chosen: Mapping[str, JsonValue], name: str = "fsdp2_train"
) -> Settings:
    """The strategy of the overrides with its options, or FSDP2."""
    strategy = read_strategy(merge({"strategy_args": {"strategy_name": name}}, chosen))[0]
    fsdp = spec.training.fsdp
    if strategy.startswith("megatron"):
        options: Settings = {
            "tensor_model_parallel_size": 1,
            "pipeline_model_parallel_size": 1,
            "expert_model_parallel_size": 1,
            "context_parallel_size": spec.training.context_parallel_size,
        }
        if strategy == "megatron_train":
            options |= {"use_distributed_optimizer": True, "recompute_granularity": "full"}
    else:
        options = {
            "fsdp_size": (fsdp.fsdp_size if fsdp else None) or devices,
            "param_dtype": DTYPES[spec.model.dtype if spec.model else "bfloat16"],
            "reduce_dtype": "float32",
            "reshard_after_forward": fsdp.reshard_after_forward if fsdp else True,
            "offload_policy": False,
            "async_save_ckpt": False,
        }
    return {"strategy_name": strategy, "strategy_config": options}


def _divide_batch(spec: RLTrainingJobSpec, role: Mapping[str, JsonValue], devices: int, limit: int) -> Settings:
    """The sizes of a mini-batch: micro-batch x gradient_accumulation_steps x data-parallel shares.

    The micro-batch is the largest one of at most `limit` responses that divides the responses of a share.
    """
    training = spec.training
    prompts = training.ppo_mini_batch_size or training.train_batch_size
    share = max(1, prompts * spec.rollout.responses_per_prompt // (count_shares(role, devices) or 1))
    micro = max(size for size in range(1, min(limit, share) + 1) if share % size == 0)
    return {"per_device_train_batch_size": micro, "gradient_accumulation_steps": share // micro}


def build_engine(
    spec: RLTrainingJobSpec, model: Model, data: Data, devices: list[int], chosen: Mapping[str, JsonValue]
) -> Settings:
    """Build the role that generates, with vLLM or SGLang."""
    rollout = spec.rollout
    name = read_strategy(merge({"strategy_args": {"strategy_name": "vllm"}}, chosen))[0]
    longest = rollout.max_model_len or data.max_prompt_length + data.max_response_length
    if name == "sglang":
        options: Settings = {"mem_fraction_static": rollout.gpu_memory_utilization, "load_format": "dummy"}
        options |= {"context_length": longest, "max_running_requests": rollout.max_num_seqs}
        options |= {"disable_cuda_graph": rollout.enforce_eager}
    else:
        options = {
            "tensor_parallel_size": rollout.tensor_parallel_size,
            "gpu_memory_utilization": rollout.gpu_memory_utilization,
            "enforce_eager": rollout.enforce_eager,
            "max_model_len": longest,
            "max_num_seqs": rollout.max_num_seqs,
            "max_num_batched_tokens": rollout.max_num_batched_tokens or max(8192, longest),
            "enable_chunked_prefill": rollout.enable_chunked_prefill,
            **build_speculative_option(rollout),
        }
    options |= {"quantization": rollout.quantization, **rollout.engine_kwargs}
    role: Settings = {
        "model_args": {"dtype": DTYPES[model.dtype], "disable_gradient_checkpointing": True, **_build_lora(model)},
        "generating_args": {
            "max_new_tokens": data.max_response_length,
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "top_k": rollout.top_k,
            "num_beams": 1,
            "num_return_sequences": rollout.responses_per_prompt,
            **_build_stop(spec),
        },
        "data_args": {"template": "native"},
        "strategy_args": {
            "strategy_name": name,
            "strategy_config": {key: value for key, value in options.items() if value is not None},
        },
        "device_mapping": _write_devices(devices),
        "infer_batch_size": 1,
    }
    return {**role, "num_gpus_per_worker": rollout.tensor_parallel_size} if name == "sglang" else role


def build_reference(
    spec: RLTrainingJobSpec, model: Model, devices: list[int], chosen: Mapping[str, JsonValue]
) -> Settings:
    """Build the reference, by default with the kind of strategy and the parallel sizes of the actor."""
    training = spec.training
    reference = spec.training.reference
    size = reference.log_prob_micro_batch_size_per_device if reference else None
    own = get_block(chosen, "reference")
    trained = read_strategy(get_block(chosen, "actor_train"))
    devices = _choose_devices(own, devices)
    kind = trained[0].replace("_train", "_infer")
    strategy = _build_training_strategy(spec, len(devices), own, kind)
    if strategy["strategy_name"] == kind and kind.startswith("megatron"):
        sizes = {key: value for key, value in trained[1].items() if key.endswith("_parallel_size")}
        strategy = merge(strategy, {"strategy_config": sizes})
    return {
        "model_args": {**_build_model(spec, model), "disable_gradient_checkpointing": True},
        "data_args": {"template": "native"},
        "strategy_args": strategy,
        "device_mapping": _write_devices(devices),
        "infer_batch_size": size
        or training.log_prob_micro_batch_size_per_device
        or training.ppo_micro_batch_size_per_device,
        "backend_timeout": _count_minutes(spec),
    }


def build_critic(
    critic: Critic, spec: RLTrainingJobSpec, model: Model, devices: list[int], chosen: Mapping[str, JsonValue]
) -> Settings:
    """Build the critic. It trains with FSDP2: roll/models/model_providers.py has no value model for Megatron."""
    limit = critic.ppo_micro_batch_size_per_device or spec.training.ppo_micro_batch_size_per_device
    devices = _choose_devices(chosen, devices)
    role: Settings = {
        "model_args": {
            **_build_model(spec, model),
            "model_name_or_path": escape(critic.model_path or model.path),
            "model_type": "auto_token_classification",
            "num_labels": 1,
            "disable_gradient_checkpointing": not critic.enable_gradient_checkpointing,
        },
        "training_args": {
            "learning_rate": critic.learning_rate,
            "lr_scheduler_type": "constant",
            **_build_optimizer(spec),
        },
        "data_args": {"template": "native"},
        "strategy_args": _build_training_strategy(spec, len(devices), {}),
        "device_mapping": _write_devices(devices),
        "infer_batch_size": limit,
        "backend_timeout": _count_minutes(spec),
    }
    return merge(role, {"training_args": _divide_batch(spec, role, len(devices), limit)})


def build_reward(spec: RLTrainingJobSpec, model: Model) -> Settings:
    """Build the reward: a worker class of the job, or ROLL's for mathematics."""
    reward = spec.rewards[0] if spec.rewards else None
    function = reward.function if reward else None
    return {
        "worker_cls": function.name.replace(":", ".") if function else MATH_REWARD,
        "model_args": {"model_name_or_path": escape(model.path)},  # its tokenizer
        "data_args": {"template": "native"},
        "world_size": (reward.concurrency if reward else None) or 8,
        "infer_batch_size": 4,
        **(reward.options if reward else {}),
    }


def build_validation(spec: RLTrainingJobSpec, data: Data, suite: Evaluation) -> Settings:
    """Build the role of the validation: its data and its sampling."""
    return {
        "data_args": {"template": "native", "file_name": [escape(path) for path in list_files(spec)]},
        "generating_args": {
            "max_new_tokens": data.max_response_length,
            "temperature": suite.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "num_beams": 1,
            "num_return_sequences": suite.responses_per_prompt,
            **_build_stop(spec),
        },
    }


def _build_stop(spec: RLTrainingJobSpec) -> Settings:
    return {"stop_strings": list(spec.rollout.stop)} if spec.rollout.stop else {}


def _choose_devices(chosen: Mapping[str, JsonValue], devices: list[int]) -> list[int]:
    """The devices of a role's override, or the spec's devices."""
    return parse_devices(chosen.get("device_mapping")) or devices


def _count_minutes(spec: RLTrainingJobSpec) -> int:
    """The timeout of collectives in ROLL's unit."""
    return math.ceil(spec.training.collective_timeout_seconds / 60)


def _write_devices(devices: Sequence[int]) -> str:
    return f"list(range({devices[0]},{devices[-1] + 1}))" if devices else "[]"
