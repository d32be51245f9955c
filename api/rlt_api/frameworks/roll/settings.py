"""The config of ROLL's RLVR pipeline for a spec, for framework.type roll.

The keys are from roll/pipeline/rlvr/rlvr_config.py and roll/configs in ROLL 0.3.0 (keys.toml). rules.py rejects
what ROLL does not have. framework.overrides selects the strategies, by default FSDP2 and vLLM. Batch sizes and options
follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from rlt_api.blocks.data import Data
from rlt_api.frameworks.roll.roles import (
    DOMAIN,
    build_actor,
    build_critic,
    build_engine,
    build_reference,
    build_reward,
    build_validation,
    place_roles,
)
from rlt_api.frameworks.roll.values import Settings, escape, get_block, merge, read_overrides
from rlt_api.frameworks.run import Run, choose_resume
from rlt_api.frameworks.validation_set import find_suite
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, FUNCTIONS_DIRECTORY, PROGRAMS_PATH

DIRECTORY = "/workspace/ROLL"
"""Default of framework.workingDirectory: ROLL's sources in the image."""
CONFIG_FILE = "roll.yaml"
"""The config in CONFIG_DIRECTORY. It is written as JSON, which is YAML."""
LAUNCHER = "run-roll"
"""The program of PROGRAMS_PATH that starts ROLL's driver on a worker."""
ENTRY = "examples/start_rlvr_pipeline.py"
RESUME_VARIABLE = "RLT_ROLL_CHECKPOINT"
"""The variable with the folder of the checkpoint to resume from, which LAUNCHER sets."""
ESTIMATORS: Mapping[str, Mapping[str, JsonValue]] = {
    "gae": {"adv_estimator": "gae", "whiten_advantages": True},
    "grpo": {"adv_estimator": "grpo", "whiten_advantages": False},
    "reinforce_plus_plus": {"adv_estimator": "reinforce", "whiten_advantages": True},
    "reinforce_plus_plus_baseline": {
        "adv_estimator": "reinforce",
        "norm_mean_type": "group",
        "whiten_advantages": True,
    },
}
"""algorithm.advEstimator -> ROLL's settings (reward_postprocess and compute_advantage in roll/utils/functionals.py)."""
DR_GRPO: Mapping[str, JsonValue] = {
    "adv_estimator": "reinforce",
    "norm_mean_type": "group",
    "whiten_advantages": False,
}
"""grpo with normAdvByStdInGrpo: false."""
POLICY_LOSSES = {"vanilla": "token", "gspo": "seq"}
"""algorithm.policyLoss -> importance_sampling."""
KL_PENALTIES = ("kl", "abs", "mse")
"""algorithm.klInReward.estimator -> kl_penalty: the same names."""


def build_arguments(spec: RLTrainingJobSpec, run: Run) -> list[str]:
    """Build the command line of a job."""
    return build_launch(CONFIG_FILE, run.checkpoints if choose_resume(spec.checkpoint, run) == "auto" else None)


def build_launch(config: str, checkpoints: str | None) -> list[str]:
    """Build the command line for a config in CONFIG_DIRECTORY: ROLL's entry, started by LAUNCHER, which adds
    --config_path and --config_name. `checkpoints`: the folder of the checkpoints to resume from."""
    resume = ["--checkpoints", checkpoints] if checkpoints else []
    launcher = ["python3", PROGRAMS_PATH, LAUNCHER, "--config", f"{CONFIG_DIRECTORY}/{config}"]
    return [*launcher, *resume, "--", "python3", ENTRY]


def get_directory(spec: RLTrainingJobSpec) -> str:
    """Return the folder with ROLL's sources."""
    return spec.framework.working_directory or DIRECTORY


def list_python_paths(spec: RLTrainingJobSpec) -> list[str]:
    """List the folders with ROLL's sources and with the class of the reward, for PYTHONPATH in all pods."""
    functions = [reward.function for reward in spec.rewards if reward.function]
    return [
        get_directory(spec),
        *(f"{FUNCTIONS_DIRECTORY}/{each.config_map}" for each in functions if each.config_map),
    ]


def dump_config(spec: RLTrainingJobSpec, run: Run) -> str:
    """Write the config of a job as the text of CONFIG_FILE."""
    return json.dumps(build_config(spec, run), indent=2) + "\n"


def build_config(spec: RLTrainingJobSpec, run: Run) -> Settings:
    """Build the config of a valid spec: its settings, replaced by framework.overrides."""
    return merge(list_settings(spec, run), read_overrides(spec.framework.overrides))


def list_settings(spec: RLTrainingJobSpec, run: Run) -> Settings:
    """List the settings of a valid spec, without framework.overrides."""
    assert spec.data
    assert spec.model
    chosen = read_overrides(spec.framework.overrides)
    critic = spec.algorithm.critic
    train, infer = place_roles(spec)
    # Rewards of the overrides are instead of the default one.
    domains = [DOMAIN] if spec.rewards else [*get_block(chosen, "rewards")] or [DOMAIN]
    settings: Settings = {
        **_list_run(spec, run),
        **_list_batches(spec, spec.data),
        **_list_algorithm(spec),
        **_list_observability(spec, run),
        "pretrain": escape(spec.model.path),
        "actor_train": build_actor(spec, spec.model, spec.data, train, get_block(chosen, "actor_train"), domains),
        "actor_infer": build_engine(spec, spec.model, spec.data, infer, get_block(chosen, "actor_infer")),
        "rewards": {DOMAIN: build_reward(spec, spec.model)} if DOMAIN in domains else {},
    }
    if spec.algorithm.kl_loss_coef > 0 or spec.algorithm.kl_in_reward:
        settings["reference"] = build_reference(spec, spec.model, train, chosen)
    if critic:
        settings["critic"] = build_critic(critic, spec, spec.model, train, get_block(chosen, "critic"))
    if suite := find_suite(spec):
        settings["validation"] = build_validation(spec, spec.data, suite)
    return settings


def _list_run(spec: RLTrainingJobSpec, run: Run) -> Settings:
    """Checkpoints are written to, and moved within, one folder, because ROLL removes old ones from output_dir alone."""
    training = spec.training
    checkpoint = spec.checkpoint
    suite = find_suite(spec)
    steps = training.total_steps or 1
    modes: Settings = {
        "auto": f"${{oc.decode:${{oc.env:{RESUME_VARIABLE},'false'}}}}",
        "never": False,
        "path": escape(checkpoint.resume_from_path),
    }
    devices = max((group.accelerator.count for group in spec.cluster.workers if group.accelerator), default=1)
    return {
        "exp_name": run.name,
        "seed": training.seed,
        "num_gpus_per_node": devices,
        "max_steps": steps,
        "save_steps": checkpoint.save_freq if checkpoint.save_freq > 0 else steps,
        "logging_steps": 1,
        "eval_steps": suite.every if suite and suite.every else steps,
        "output_dir": run.checkpoints,
        "logging_dir": f"{run.directory}/roll-logs",
        "max_ckpt_to_keep": checkpoint.max_to_keep,
        "resume_from_checkpoint": modes[choose_resume(checkpoint, run)],
        "checkpoint_config": {"type": "file_system", "output_dir": run.checkpoints, "async_upload": False},
        "model_download_type": "HUGGINGFACE_HUB",
    }


def _list_batches(spec: RLTrainingJobSpec, data: Data) -> Settings:
    staleness = spec.rollout.staleness
    return {
        "rollout_batch_size": spec.training.train_batch_size,
        "num_return_sequences_in_group": spec.rollout.responses_per_prompt,
        "prompt_length": data.max_prompt_length,
        "response_length": data.max_response_length,
        "ppo_epochs": spec.training.ppo_epochs,
        # Requests for this number of batches are sent ahead (roll/distributed/scheduler/generate_scheduler.py).
        "async_generation_ratio": staleness.max_steps if staleness else 0,
    }


def _list_algorithm(spec: RLTrainingJobSpec) -> Settings:
    algorithm = spec.algorithm
    control = spec.algorithm.kl_in_reward
    critic = spec.algorithm.critic
    low = algorithm.clip_ratio_low
    high = algorithm.clip_ratio_high
    correction = algorithm.rollout_correction
    estimator = ESTIMATORS[algorithm.adv_estimator]
    if algorithm.adv_estimator == "grpo" and not algorithm.norm_adv_by_std_in_grpo:
        estimator = DR_GRPO
    settings: Settings = {
        "norm_mean_type": None,
        "norm_std_type": None,
        **estimator,
        "gamma": algorithm.gamma,
        "lambd": algorithm.lam,
        "pg_clip": algorithm.clip_ratio,
        "use_pg_clip_range": low is not None or high is not None,
        "pg_clip_low": algorithm.clip_ratio if low is None else low,
        "pg_clip_high": algorithm.clip_ratio if high is None else high,
        "dual_clip_loss": False,
        "importance_sampling": POLICY_LOSSES[algorithm.policy_loss],
        "loss_agg_mode": algorithm.loss_agg_mode,
        "entropy_loss_coef": algorithm.entropy_coeff,
        "use_kl_loss": algorithm.kl_loss_coef > 0,
        "kl_loss_coef": algorithm.kl_loss_coef,
        "add_token_level_kl": control is not None,
        "init_kl_coef": control.kl_coef if control else 0.0,  # ROLL's default is 0.2
        "max_len_mask": algorithm.mask_truncated_completions,
        "max_grad_norm": spec.training.grad_clip,
    }
    if control:
        settings["kl_penalty"] = control.estimator
        if control.type == "adaptive":
            settings |= {"target_kl": control.target_kl, "kl_horizon": control.horizon}
    if critic:
        settings |= {"critic_warmup": critic.warmup_steps, "value_clip": critic.cliprange_value}
    if correction:
        weight: Settings = {"enabled": True, "weight_type": correction.level, "upper_bound": correction.threshold}
        settings["train_infer_correction"] = {"is_weight": weight}
    return settings


def _list_observability(spec: RLTrainingJobSpec, run: Run) -> Settings:
    """ROLL has one tracker. The tracker stdout prints the metrics of each step."""
    wandb = spec.observability.wandb
    tensorboard = spec.observability.tensorboard
    settings: Settings = {"track_with": "stdout", "profiler_output_dir": f"{run.directory}/profile"}
    if wandb:
        kwargs: Settings = {"project": wandb.project or run.namespace, "name": run.name, "log_dir": run.directory}
        settings |= {"track_with": "wandb", "tracker_kwargs": kwargs}
    elif tensorboard:
        directory = tensorboard.directory or f"{run.directory}/tensorboard"
        settings |= {"track_with": "tensorboard", "tracker_kwargs": {"log_dir": directory}}
    return settings
