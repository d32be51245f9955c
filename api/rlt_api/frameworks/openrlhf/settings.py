"""The options of OpenRLHF's train_ppo_ray for a spec, for framework.type openrlhf.

The names are from openrlhf/cli/train_ppo_ray.py in OpenRLHF 0.11.2. What it does not have is in
rules.py. All models and engines share all devices, as the workers of rlt's trainer in mode colocated.
"""

from __future__ import annotations

from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model
from rlt_api.frameworks.run import Run, compute_micro_batch_size, count_devices, count_shares
from rlt_api.frameworks.validation_set import find_suite, list_files
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY

PROGRAM = ("python3", "-m", "openrlhf.cli.train_ppo_ray")
ESTIMATORS = {
    "gae": "gae",
    "grpo": "group_norm",
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforce",
    "reinforce_plus_plus_baseline": "reinforce_baseline",
}
"""algorithm.advEstimator -> --algo.advantage.estimator."""
POLICY_LOSSES = {"vanilla": "ppo", "gspo": "gspo"}
"""algorithm.policyLoss -> --actor.policy_loss_type."""
KL_ESTIMATORS = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
"""algorithm.klLossType, klInReward.estimator -> --algo.kl.estimator."""
SCHEDULERS = {"constant": "constant", "cosine": "cosine_with_min_lr"}
"""training.lrSchedule.type -> --actor.lr_scheduler, a name in transformers."""
LAST_REWARD = 1e6
"""Bound of rewards: OpenRLHF clips them to 10, rlt does not."""

Value = bool | int | float | str | list[str] | list[float] | None
Options = dict[str, Value]
"""Name -> value. False and None are left out."""


def build_arguments(spec: RLTrainingJobSpec, run: Run) -> list[str]:
    """Build the command line: the program, the options of the spec, and framework.overrides."""
    options = [word for name, value in list_options(spec, run).items() for word in format_option(name, value)]
    return [*PROGRAM, *options, *spec.framework.overrides]


def format_option(name: str, value: Value) -> list[str]:
    """Format an option. A list is given as several words, a flag without a value."""
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}={value}"]


def list_options(spec: RLTrainingJobSpec, run: Run) -> Options:
    """List the options of a valid spec."""
    assert spec.data
    assert spec.model
    return {
        **_list_placement(spec),
        **_list_data(spec.data, spec),
        **_list_model(spec.model, spec),
        **_list_optimization(spec),
        **_list_algorithm(spec),
        **_list_reward(spec),
        **_list_checkpoints(spec, run),
        **_list_loggers(spec, run),
    }


def _list_placement(spec: RLTrainingJobSpec) -> Options:
    """All models on all devices."""
    nodes = spec.cluster.workers[0].replicas
    devices = count_devices(spec)
    rollout = spec.rollout
    models = ["actor", "ref", *(["critic"] if spec.algorithm.critic else [])]
    models += ["reward"] if any(each.model for each in spec.rewards) else []
    return {
        "train.colocate_all": True,
        **{f"{model}.num_nodes": nodes for model in models},
        **{f"{model}.num_gpus_per_node": devices for model in models},
        "vllm.num_engines": nodes * devices // rollout.tensor_parallel_size,
        "vllm.tensor_parallel_size": rollout.tensor_parallel_size,
        "vllm.gpu_memory_utilization": rollout.gpu_memory_utilization,
        "vllm.enforce_eager": rollout.enforce_eager,
        "vllm.enable_sleep": rollout.free_cache_engine,
        "ds.enable_sleep": rollout.free_cache_engine,
    }


def _list_data(data: Data, spec: RLTrainingJobSpec) -> Options:
    suite = find_suite(spec)
    tested = suite.data.hub if suite and suite.data else None
    hub = data.hub
    return {
        "data.prompt_dataset": hub.name if hub else ",".join(data.files or []),
        "data.prompt_split": hub.split if hub else None,
        "data.input_key": data.prompt_key,
        "data.label_key": data.answer_key,
        "data.apply_chat_template": True,
        "data.max_len": data.max_prompt_length + data.max_response_length,
        "rollout.max_new_tokens": data.max_response_length,
        "rollout.batch_size": spec.training.train_batch_size,
        "rollout.n_samples_per_prompt": spec.rollout.responses_per_prompt,
        "rollout.temperature": spec.rollout.temperature,
        "rollout.top_p": spec.rollout.top_p,
        "eval.dataset": (tested.name if tested else ",".join(list_files(spec))) or None,
        "eval.split": tested.split if tested else None,
        "eval.steps": suite.every if suite and suite.every else -1,
        "eval.n_samples_per_prompt": suite.responses_per_prompt if suite else 1,
        "eval.temperature": suite.temperature if suite else 0.0,
    }


def _list_model(model: Model, spec: RLTrainingJobSpec) -> Options:
    fsdp = spec.training.fsdp
    reference = spec.training.reference
    lora = model.lora
    modules = lora.target_modules if lora else []
    return {
        "actor.model_name_or_path": model.path,
        "actor.gradient_checkpointing_enable": model.enable_gradient_checkpointing,
        "ds.packing_samples": model.use_remove_padding,
        "ds.param_dtype": "bf16",
        # ZeRO-3 shards the weights as FSDP2 does, ZeRO-2 keeps them gathered.
        "ds.zero_stage": 3 if fsdp is None or fsdp.reshard_after_forward else 2,
        "ds.adam_offload": fsdp.optimizer_offload if fsdp else False,
        "ds.ring_attn_size": spec.training.context_parallel_size,
        "ds.use_liger_kernel": bool(spec.model and spec.model.use_liger),
        "ds.deepcompile": spec.training.use_torch_compile,
        "ref.offload": reference.param_offload if reference else False,
        "ds.lora.rank": lora.rank if lora else None,
        "ds.lora.alpha": lora.alpha if lora else None,
        "ds.lora.target_modules": None if modules in ([], ["all-linear"]) else [*modules],
    }


def _list_optimization(spec: RLTrainingJobSpec) -> Options:
    training = spec.training
    schedule = spec.training.lr_schedule
    critic = spec.algorithm.critic
    limit = training.ppo_micro_batch_size_per_device
    share = max(1, training.train_batch_size * spec.rollout.responses_per_prompt // count_shares(spec))
    options: Options = {
        "train.num_episodes": training.total_epochs,
        "train.max_epochs": training.ppo_epochs,
        "train.batch_size": (training.ppo_mini_batch_size or training.train_batch_size)
        * spec.rollout.responses_per_prompt,
        "train.micro_batch_size": compute_micro_batch_size(spec, limit, count_shares(spec)),
        "rollout.micro_batch_size": min(training.log_prob_micro_batch_size_per_device or limit, share),
        "train.dynamic_batch_enable": training.use_dynamic_bsz,
        "train.max_tokens_per_gpu": training.ppo_max_token_len_per_device,
        "rollout.max_tokens_per_gpu": training.ppo_max_token_len_per_device,
        "train.seed": training.seed,
    }
    for model, rate in {
        "actor": training.learning_rate,
        **({"critic": critic.learning_rate} if critic else {}),
    }.items():
        options |= {
            f"{model}.adam.lr": rate,
            f"{model}.adam.betas": [*training.betas],
            f"{model}.adam.weight_decay": training.weight_decay,
            f"{model}.max_norm": training.grad_clip,
            f"{model}.lr_warmup_ratio": 0.0,
            f"{model}.lr_scheduler": "constant",
        }
    if schedule:
        options |= {"actor.lr_scheduler": SCHEDULERS[schedule.type], "actor.min_lr_ratio": schedule.min_ratio}
    return options


def _list_algorithm(spec: RLTrainingJobSpec) -> Options:
    algorithm = spec.algorithm
    critic = spec.algorithm.critic
    correction = spec.algorithm.rollout_correction
    control = algorithm.kl_in_reward
    buffer = algorithm.overlong_buffer
    low = algorithm.clip_ratio_low
    high = algorithm.clip_ratio_high
    estimator = ESTIMATORS[algorithm.adv_estimator]
    if estimator == "group_norm" and not algorithm.norm_adv_by_std_in_grpo:
        estimator = "dr_grpo"
    options: Options = {
        "algo.advantage.estimator": estimator,
        "algo.advantage.gamma": algorithm.gamma,
        "algo.advantage.lambd": algorithm.lam,
        "actor.policy_loss_type": POLICY_LOSSES[algorithm.policy_loss],
        "actor.eps_clip": algorithm.clip_ratio,
        "actor.eps_clip_low_high": [
            algorithm.clip_ratio if low is None else low,
            algorithm.clip_ratio if high is None else high,
        ],
        "actor.dual_clip": algorithm.clip_ratio_c,
        "actor.loss_agg_mode": algorithm.loss_agg_mode,
        "actor.entropy_coef": algorithm.entropy_coeff,  # 0 reports the entropy
        "algo.kl.use_loss": control is None and algorithm.kl_loss_coef > 0,
        "algo.kl.init_coef": control.kl_coef if control else algorithm.kl_loss_coef,
        "algo.kl.estimator": KL_ESTIMATORS[control.estimator if control else algorithm.kl_loss_type],
        "reward.overlong_buffer_len": buffer.length if buffer else None,
        "reward.overlong_penalty_factor": buffer.penalty_factor if buffer else None,
    }
    if critic:
        options |= {
            "critic.model_name_or_path": critic.model_path or (spec.model.path if spec.model else None),
            "critic.value_clip": critic.cliprange_value,
            "critic.freezing_steps": critic.warmup_steps or None,
        }
    if correction:
        lower = correction.lower_threshold
        options |= {
            "algo.advantage.is_correction_level": "token",
            "algo.advantage.is_correction_mode": "clip" if lower is None else "mask",
            "algo.advantage.is_correction_threshold": [lower or 0.0, correction.threshold],
        }
    return options


def _list_reward(spec: RLTrainingJobSpec) -> Options:
    options: Options = {"reward.clip_range": [-LAST_REWARD, LAST_REWARD]}
    for reward in spec.rewards:
        if reward.function:
            module = reward.function.name.partition(":")[0].replace(".", "/")
            options["reward.remote_url"] = f"{FUNCTIONS_DIRECTORY}/{reward.function.config_map}/{module}.py"
        elif reward.model:
            options["reward.model_name_or_path"] = reward.model
    return options


def _list_checkpoints(spec: RLTrainingJobSpec, run: Run) -> Options:
    checkpoint = spec.checkpoint
    return {
        "ckpt.path": run.checkpoints,
        "ckpt.output_dir": run.model,
        "ckpt.save_steps": checkpoint.save_freq,
        "ckpt.max_num": checkpoint.max_to_keep or 2**31 - 1,
        "ckpt.load_enable": checkpoint.resume == "auto",
        "ckpt.best_metric_key": None if checkpoint.keep_best else "none",
    }


def _list_loggers(spec: RLTrainingJobSpec, run: Run) -> Options:
    wandb = spec.observability.wandb
    tensorboard = spec.observability.tensorboard
    directory = (tensorboard.directory or f"{run.directory}/tensorboard") if tensorboard else None
    options: Options = {"logger.tensorboard_dir": directory}
    if wandb:
        options |= {
            "logger.wandb.key": "WANDB_API_KEY",  # any text: the key itself is in this variable
            "logger.wandb.project": wandb.project or run.namespace,
            "logger.wandb.org": wandb.entity,
            "logger.wandb.run_name": run.name,
        }
    return options
