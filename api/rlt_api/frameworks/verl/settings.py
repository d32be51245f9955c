"""The settings of verl's main_ppo for a spec, for framework.type verl.

All fields are given, also those with rlt's defaults, so that a job means the same with every framework. rules.py
rejects what verl does not have. The names are from verl/trainer/config in verl 0.5.0 and 0.9.1; keys with ++ are
read by verl but not part of its config.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from rlt_api.blocks.algorithm import Algorithm, Critic
from rlt_api.blocks.data import Data
from rlt_api.blocks.framework import Framework
from rlt_api.blocks.model import Model
from rlt_api.frameworks.arguments import Program, parse_overrides
from rlt_api.frameworks.run import Run, choose_resume, compute_micro_batch_size, count_devices
from rlt_api.frameworks.validation_set import find_suite, list_files
from rlt_api.frameworks.verl.engines import fit_engine
from rlt_api.frameworks.verl.overrides import format_override
from rlt_api.frameworks.verl.parallel import ULYSSES, count_shares, read_engine
from rlt_api.frameworks.verl.placement import list_placement
from rlt_api.spec.engine_options import build_speculative_option
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY
from rlt_api.spec.worker_groups import training_group

PROGRAM = ("python3", "-m", "verl.trainer.main_ppo")
DEFAULT_VERSION = "0.9"
RESUME_MODES = {"auto": "auto", "never": "disable", "path": "resume_path", "job": "resume_path"}
"""checkpoint.resume -> verl's trainer.resume_mode. The operator replaces job by path when it accepts the job."""
BATCHED_TOKENS = 8192
"""verl's default of rollout.max_num_batched_tokens, which must not be less than a sequence."""
OVERLONG_PROMPTS = {"filter": "error"}
"""data.overlongPrompts -> verl's data.truncation, where they differ."""
ACTOR, REF, ROLLOUT, MODEL = (f"actor_rollout_ref.{name}" for name in ("actor", "ref", "rollout", "model"))

Settings = dict[str, JsonValue]
"""Key -> value. None stands for verl's default."""


def build_arguments(spec: RLTrainingJobSpec, run: Run) -> list[str]:
    """Build the command line: the program, the overrides of the spec, and framework.overrides."""
    overrides = [format_override(key, value) for key, value in list_settings(spec, run).items()]
    return [*PROGRAM, *overrides, *spec.framework.overrides]


def parse_command(spec: RLTrainingJobSpec) -> Program:
    """Read the command line of a valid spec like the one of a command job."""
    _, _, _, *overrides = build_arguments(spec, Run("", "", ""))
    return Program("verl", parse_overrides(overrides))


def list_settings(spec: RLTrainingJobSpec, run: Run) -> Settings:
    """List the settings of a valid spec, without those that keep verl's default."""
    assert spec.data
    assert spec.model
    critic = spec.algorithm.critic
    settings = {
        **_list_data(spec.data, spec),
        **_list_model(spec.model, spec.data),
        **_list_actor(spec, spec.model),
        **_list_reference(spec, spec.model),
        **_list_rollout(spec, spec.data, spec.model),
        **_list_algorithm(spec),
        **(_list_critic(critic, spec, spec.model) if critic else {}),
        **_list_reward(spec, spec.data),
        **_list_trainer(spec, run),
        **_list_observability(spec, run),
    }
    given: Settings = {key: value for key, value in settings.items() if value is not None}
    return given if is_old(spec.framework) else fit_engine(given, read_engine(_read_overrides(spec)))


def is_old(framework: Framework) -> bool:
    """Whether the names are verl 0.5's."""
    return (framework.version or DEFAULT_VERSION) == "0.5"


def _read_overrides(spec: RLTrainingJobSpec) -> Mapping[str, JsonValue]:
    return Program("verl", parse_overrides(spec.framework.overrides)).values


def _fit_micro_batch(spec: RLTrainingJobSpec, limit: int) -> int:
    """Compute a micro-batch for the shares of the engine in framework.overrides, by default FSDP's."""
    chosen = _read_overrides(spec)
    context = f"{ACTOR}.megatron.context_parallel_size" if read_engine(chosen) == "megatron" else ULYSSES[0]
    sizes = {context: spec.training.context_parallel_size, **chosen}
    shares = count_shares(sizes, training_group(spec).replicas * count_devices(spec))
    return compute_micro_batch_size(spec, limit, shares or 1)


def _list_data(data: Data, spec: RLTrainingJobSpec) -> Settings:
    files: list[JsonValue] = [*(data.files or [])]
    return {
        "data.train_files": files,
        "data.val_files": [*list_files(spec)] or files,  # verl always loads them
        "data.prompt_key": data.prompt_key,
        "data.image_key": data.image_key,
        "data.max_prompt_length": data.max_prompt_length,
        "data.max_response_length": data.max_response_length,
        "data.filter_overlong_prompts": data.overlong_prompts == "filter",
        "data.truncation": OVERLONG_PROMPTS.get(data.overlong_prompts, data.overlong_prompts),
        "data.shuffle": data.shuffle,
        "data.train_batch_size": spec.training.train_batch_size,
        "++data.seed": spec.training.seed,
        "data.trust_remote_code": spec.model.trust_remote_code if spec.model else None,
    }


def _list_model(model: Model, data: Data) -> Settings:
    settings: Settings = {
        f"{MODEL}.path": model.path,
        f"{MODEL}.trust_remote_code": model.trust_remote_code,
        f"{MODEL}.custom_chat_template": data.chat_template,
        f"{MODEL}.enable_gradient_checkpointing": model.enable_gradient_checkpointing,
        f"{MODEL}.use_remove_padding": model.use_remove_padding,
        f"{MODEL}.use_liger": model.use_liger,
    }
    if model.lora:
        modules = model.lora.target_modules
        settings |= {
            f"{MODEL}.lora_rank": model.lora.rank,
            f"{MODEL}.lora_alpha": model.lora.alpha,
            f"{MODEL}.target_modules": "all-linear" if modules == ["all-linear"] else [*modules],
            # The engine gets only the adapters from the trainer, so that it reads the other weights itself.
            f"{ROLLOUT}.load_format": "safetensors",
        }
    return settings


def _build_precision(model: Model) -> JsonValue:
    """FSDP reads param_dtype, and not fsdp_config.dtype (verl/workers/engine/fsdp/transformer_impl.py)."""
    return {"param_dtype": model.dtype, "reduce_dtype": "float32", "buffer_dtype": "float32"}


def _list_actor(spec: RLTrainingJobSpec, model: Model) -> Settings:
    training = spec.training
    algorithm = spec.algorithm
    old = is_old(spec.framework)
    fsdp = training.fsdp
    schedule = training.lr_schedule
    optim = f"{ACTOR}.optim"
    low = algorithm.clip_ratio_low
    high = algorithm.clip_ratio_high
    settings: Settings = {
        f"{ACTOR}.strategy": training.strategy,
        f"{ACTOR}.ppo_mini_batch_size": training.ppo_mini_batch_size or training.train_batch_size,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": _fit_micro_batch(spec, training.ppo_micro_batch_size_per_device),
        f"{ACTOR}.use_dynamic_bsz": training.use_dynamic_bsz,
        f"{ACTOR}.ppo_max_token_len_per_gpu": training.ppo_max_token_len_per_device,
        f"{ACTOR}.ppo_epochs": training.ppo_epochs,
        f"{ACTOR}.grad_clip": training.grad_clip,
        f"{ACTOR}.ulysses_sequence_parallel_size": training.context_parallel_size,
        f"{ACTOR}.use_torch_compile": training.use_torch_compile,
        f"{ACTOR}.freeze_vision_tower": model.freeze_vision_tower or None,  # version 0.5 has no such key
        f"{ACTOR}.clip_ratio": algorithm.clip_ratio,
        f"{ACTOR}.clip_ratio_low": algorithm.clip_ratio if low is None else low,
        f"{ACTOR}.clip_ratio_high": algorithm.clip_ratio if high is None else high,
        f"{ACTOR}.clip_ratio_c": algorithm.clip_ratio_c,
        f"{ACTOR}.policy_loss.loss_mode": algorithm.policy_loss,
        f"{ACTOR}.loss_agg_mode": algorithm.loss_agg_mode,
        f"{ACTOR}.entropy_coeff": algorithm.entropy_coeff,
        f"{ACTOR}.use_kl_loss": algorithm.kl_loss_coef > 0,
        f"{ACTOR}.kl_loss_coef": algorithm.kl_loss_coef,
        f"{ACTOR}.kl_loss_type": algorithm.kl_loss_type,
        f"{optim}.lr": training.learning_rate,
        f"{optim}.weight_decay": training.weight_decay,
        f"{'++' if old else ''}{optim}.betas": [*training.betas],
        f"{optim}.{'warmup_style' if old else 'lr_scheduler_type'}": schedule.type if schedule else "constant",
        f"{optim}.lr_warmup_steps": schedule.warmup_steps if schedule else 0,
        f"{optim}.min_lr_ratio": schedule.min_ratio if schedule else None,
        f"{ACTOR}.fsdp_config.fsdp_size": fsdp.fsdp_size if fsdp else None,
        f"{ACTOR}.fsdp_config.param_offload": fsdp.param_offload if fsdp else False,
        f"{ACTOR}.fsdp_config.optimizer_offload": fsdp.optimizer_offload if fsdp else False,
        f"{ACTOR}.fsdp_config.reshard_after_forward": fsdp.reshard_after_forward if fsdp else True,
    }
    if not old:
        settings |= {
            "actor_rollout_ref.nccl_timeout": training.collective_timeout_seconds,
            f"{optim}.clip_grad": training.grad_clip,
            f"{ACTOR}.data_loader_seed": training.seed,
            f"{ACTOR}.fsdp_config.seed": training.seed,
            f"++{ACTOR}.fsdp_config.mixed_precision": _build_precision(model),
        }
    return settings | _list_policy_loss(algorithm)


def _list_policy_loss(algorithm: Algorithm) -> Settings:
    """The parameters that one policy loss alone reads."""
    policy_loss = f"{ACTOR}.policy_loss"
    match algorithm.policy_loss:
        case "sapo":
            return {f"{ACTOR}.tau_pos": algorithm.tau_pos, f"{ACTOR}.tau_neg": algorithm.tau_neg}
        case "clip_cov":
            return {
                f"{policy_loss}.clip_cov_ratio": algorithm.clip_cov_ratio,
                f"{policy_loss}.clip_cov_lb": algorithm.clip_cov_lb,
                f"{policy_loss}.clip_cov_ub": algorithm.clip_cov_ub,
            }
        case "kl_cov":
            return {
                f"{policy_loss}.kl_cov_ratio": algorithm.kl_cov_ratio,
                f"{policy_loss}.ppo_kl_coef": algorithm.ppo_kl_coef,
            }
        case _:
            return {}


def _list_reference(spec: RLTrainingJobSpec, model: Model) -> Settings:
    """The reference model. verl 0.5 shards it over all devices."""
    training = spec.training
    reference = spec.training.reference
    limit = reference.log_prob_micro_batch_size_per_device if reference else None
    settings: Settings = {
        f"{REF}.strategy": training.strategy,
        f"{REF}.log_prob_micro_batch_size_per_gpu": _fit_micro_batch(
            spec, limit or training.ppo_micro_batch_size_per_device
        ),
        f"{REF}.fsdp_config.param_offload": reference.param_offload if reference else False,
        f"{REF}.use_torch_compile": training.use_torch_compile,
    }
    if not is_old(spec.framework):
        settings |= {
            f"{REF}.fsdp_config.fsdp_size": training.fsdp.fsdp_size if training.fsdp else None,
            f"++{REF}.fsdp_config.mixed_precision": _build_precision(model),
        }
    return settings


def _list_rollout(spec: RLTrainingJobSpec, data: Data, model: Model) -> Settings:
    rollout = spec.rollout
    training = spec.training
    suite = find_suite(spec)
    temperature = suite.temperature if suite else 0.0
    longest = rollout.max_model_len or data.max_prompt_length + data.max_response_length
    engine_kwargs = {**build_speculative_option(rollout), **rollout.engine_kwargs}
    settings: Settings = {
        f"{ROLLOUT}.name": rollout.engine,
        f"{ROLLOUT}.n": rollout.responses_per_prompt,
        f"{ROLLOUT}.temperature": rollout.temperature,
        f"{ROLLOUT}.top_p": rollout.top_p,
        f"{ROLLOUT}.top_k": rollout.top_k,
        f"{ROLLOUT}.dtype": model.dtype,
        f"{ROLLOUT}.quantization": rollout.quantization,
        f"{ROLLOUT}.tensor_model_parallel_size": rollout.tensor_parallel_size,
        f"{ROLLOUT}.gpu_memory_utilization": rollout.gpu_memory_utilization,
        f"{ROLLOUT}.enforce_eager": rollout.enforce_eager,
        f"{ROLLOUT}.free_cache_engine": rollout.free_cache_engine,
        f"{ROLLOUT}.max_model_len": longest,
        f"{ROLLOUT}.max_num_seqs": rollout.max_num_seqs,
        f"{ROLLOUT}.max_num_batched_tokens": rollout.max_num_batched_tokens or max(BATCHED_TOKENS, longest),
        f"{ROLLOUT}.enable_chunked_prefill": rollout.enable_chunked_prefill,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": _fit_micro_batch(
            spec, training.log_prob_micro_batch_size_per_device or training.ppo_micro_batch_size_per_device
        ),
        f"{ROLLOUT}.val_kwargs.n": suite.responses_per_prompt if suite else 1,
        f"{ROLLOUT}.val_kwargs.temperature": temperature,
        f"{ROLLOUT}.val_kwargs.do_sample": temperature > 0,
        **{f"++{ROLLOUT}.engine_kwargs.vllm.{name}": value for name, value in engine_kwargs.items()},
    }
    if not is_old(spec.framework):
        settings[f"{ROLLOUT}.seed"] = training.seed
    return settings


def _list_algorithm(spec: RLTrainingJobSpec) -> Settings:
    algorithm = spec.algorithm
    control = algorithm.kl_in_reward
    groups = algorithm.filter_groups
    correction = algorithm.rollout_correction
    settings: Settings = {
        "algorithm.adv_estimator": algorithm.adv_estimator,
        "algorithm.norm_adv_by_std_in_grpo": algorithm.norm_adv_by_std_in_grpo,
        "algorithm.gamma": algorithm.gamma,
        "algorithm.lam": algorithm.lam,
        "algorithm.use_kl_in_reward": control is not None,
    }
    if control:
        settings |= {
            "algorithm.kl_penalty": control.estimator,
            "algorithm.kl_ctrl.type": control.type,
            "algorithm.kl_ctrl.kl_coef": control.kl_coef,
            "algorithm.kl_ctrl.target_kl": control.target_kl,
            "algorithm.kl_ctrl.horizon": control.horizon,
        }
    if groups:
        settings |= {
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "reward" if groups.metric == "seq_reward" else groups.metric,
            "algorithm.filter_groups.max_num_gen_batches": groups.max_num_gen_batches,
        }
    if correction:
        lower = correction.lower_threshold
        upper = correction.threshold
        settings |= {
            "algorithm.rollout_correction.rollout_is": None if correction.level == "none" else correction.level,
            "algorithm.rollout_correction.rollout_is_threshold": upper if lower is None else f"{lower}_{upper}",
            "algorithm.rollout_correction.rollout_rs": correction.rejection,
            "algorithm.rollout_correction.rollout_rs_threshold": correction.rejection_threshold,
            "algorithm.rollout_correction.bypass_mode": correction.bypass_mode,
        }
    return settings


def _list_critic(critic: Critic, spec: RLTrainingJobSpec, model: Model) -> Settings:
    training = spec.training
    old = is_old(spec.framework)
    fsdp = "critic.model.fsdp_config" if old else "critic.fsdp"
    limit = training.ppo_micro_batch_size_per_device
    settings: Settings = {
        "critic.strategy": training.strategy,
        "critic.model.path": critic.model_path or model.path,
        "critic.model.trust_remote_code": model.trust_remote_code,
        "critic.model.enable_gradient_checkpointing": critic.enable_gradient_checkpointing,
        "critic.model.use_remove_padding": critic.use_remove_padding,
        "critic.optim.lr": critic.learning_rate,
        "critic.optim.weight_decay": training.weight_decay,
        f"{'++' if old else ''}critic.optim.betas": [*training.betas],
        "critic.ppo_micro_batch_size_per_gpu": _fit_micro_batch(spec, critic.ppo_micro_batch_size_per_device or limit),
        "critic.ppo_max_token_len_per_gpu": training.ppo_max_token_len_per_device,
        "critic.forward_max_token_len_per_gpu": training.ppo_max_token_len_per_device,
        "critic.ulysses_sequence_parallel_size": training.context_parallel_size,
        "critic.grad_clip": training.grad_clip,
        "critic.cliprange_value": critic.cliprange_value,
        f"{fsdp}.fsdp_size": training.fsdp.fsdp_size if training.fsdp else None,
        f"{fsdp}.param_offload": critic.param_offload,
        f"{fsdp}.optimizer_offload": critic.optimizer_offload,
        "trainer.critic_warmup": critic.warmup_steps,
    }
    if not old:
        settings |= {
            "critic.optim.clip_grad": training.grad_clip,
            "++critic.fsdp.mixed_precision": _build_precision(model),
        }
    return settings


def _list_reward(spec: RLTrainingJobSpec, data: Data) -> Settings:
    """The reward function and DAPO's penalty. Without a function, verl selects one by the column data_source."""
    old = is_old(spec.framework)
    buffer = spec.algorithm.overlong_buffer
    block = "custom_reward_function" if old else "reward.custom_reward_function"
    settings = Settings()
    for reward in spec.rewards:
        if reward.function is None:
            continue
        module, _, name = reward.function.name.partition(":")
        folder = reward.function.config_map and f"{FUNCTIONS_DIRECTORY}/{reward.function.config_map}"
        settings |= {
            f"{block}.path": f"{folder}/{module.replace('.', '/')}.py" if folder else f"pkg://{module}",
            f"{block}.name": name,
            **{f"++{block}.reward_kwargs.{option}": value for option, value in reward.options.items()},
        }
        if not old:
            settings["reward.num_workers"] = reward.concurrency
    if buffer:
        kwargs = f"++{'reward_model' if old else 'reward'}.reward_kwargs"
        settings |= {
            "reward_model.reward_manager" if old else "reward.reward_manager.name": "dapo",
            f"{kwargs}.max_resp_len": data.max_response_length,
            f"{kwargs}.overlong_buffer_cfg.enable": True,
            f"{kwargs}.overlong_buffer_cfg.len": buffer.length,
            f"{kwargs}.overlong_buffer_cfg.penalty_factor": buffer.penalty_factor,
            f"{kwargs}.overlong_buffer_cfg.log": False,
        }
    return settings


def _list_trainer(spec: RLTrainingJobSpec, run: Run) -> Settings:
    training = spec.training
    checkpoint = spec.checkpoint
    suite = find_suite(spec)
    resume = choose_resume(checkpoint, run)
    return {
        **list_placement(spec),
        # TransferQueue 0.1.11 assigns actors to all Ray nodes in turn, also to the head, which has no CPUs.
        "++transfer_queue.backend.SimpleStorage.required_node_resource": None if is_old(spec.framework) else "CPU",
        # verl ends at the first of both; an epoch has at least one step.
        "trainer.total_epochs": training.total_epochs or training.total_steps,
        "trainer.total_training_steps": training.total_steps,
        "trainer.val_before_train": suite.before_train if suite else False,
        "trainer.test_freq": suite.every if suite and suite.every else -1,
        "trainer.save_freq": checkpoint.save_freq,
        "trainer.resume_mode": RESUME_MODES[resume],
        "trainer.resume_from_path": checkpoint.resume_from_path if resume == "path" else None,
        "trainer.max_actor_ckpt_to_keep": checkpoint.max_to_keep or None,
        "trainer.max_critic_ckpt_to_keep": checkpoint.max_to_keep or None,
        "trainer.default_local_dir": run.checkpoints,
        "trainer.experiment_name": run.name,
        # Hydra's default is below the working directory, which the user of the pods may not be able to write.
        "hydra.run.dir": f"{run.directory}/hydra",
    }


def _list_observability(spec: RLTrainingJobSpec, run: Run) -> Settings:
    observability = spec.observability
    old = is_old(spec.framework)
    wandb = observability.wandb
    timeline = observability.timeline
    profiler = observability.profiler
    logger: list[JsonValue] = ["console"]
    logger += ["wandb"] if wandb else []
    logger += ["tensorboard"] if observability.tensorboard else []
    settings: Settings = {
        "trainer.logger": logger,
        "trainer.project_name": (wandb.project if wandb else None) or run.namespace,
        "++trainer.wandb_proxy": wandb.proxy if wandb else None,
        f"{'ray_init' if old else 'ray_kwargs'}.timeline_json_file": timeline.file if timeline else None,
    }
    if profiler:
        settings |= {
            "global_profiler.tool": "torch",
            "global_profiler.steps": [*profiler.steps],
            "global_profiler.save_path": profiler.directory or f"{run.directory}/profile",
            f"{ACTOR}.profiler.enable": True,
            f"{ACTOR}.profiler.all_ranks": True,
        }
    return settings
