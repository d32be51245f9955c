"""The driver: validates the input, joins Ray, starts the workers, and runs the training loop."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from rlt_api.driver_report import METRICS_PORT
from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import count_train_workers, training_pods
from rlt_trainer.cluster.session import join_ray, leave_ray
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import PromptDataset, ValidationSet
from rlt_trainer.data.tokenizer import (
    load_tokenizer,
    validate_critic_tokenizer,
    validate_tokenizer,
    warn_about_end_of_text,
)
from rlt_trainer.driver.engines import build_engines
from rlt_trainer.driver.experience import load_estimator
from rlt_trainer.driver.loop import Trainer
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.rollout_checks import check_rollout
from rlt_trainer.driver.termination import Termination
from rlt_trainer.environments.environment import load_environment
from rlt_trainer.policy.config import find_eos_tokens, load_config, resolve_critic_model
from rlt_trainer.policy.mesh import data_parallel_size
from rlt_trainer.policy.policy_objective import PolicyObjective
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.flops import find_shape
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.sinks import build_sinks
from rlt_trainer.workers.train_worker import TrainWorker

MIN_HEAD_SIZE = 32
"""Minimum head size of vLLM's attention on CPUs (vLLM 0.32.0, vllm/v1/attention/backends/cpu_attn.py)."""


def run(config: TrainingConfig, *, local: bool) -> None:
    """Run the whole training. `local`: start Ray on this machine instead of joining a Ray cluster.

    The last line on standard output is PROGRESS_PREFIX and the last report, also after an error. Raises ValueError or
    FileNotFoundError for invalid input, TrainingError if the training cannot continue, and Terminated after SIGTERM.
    """
    port = 0 if local else METRICS_PORT
    server = ProgressServer(port, run_directory=config.run_directory, job=config.job, namespace=config.namespace)
    server.start()
    try:
        _run(config, server, local=local)
    finally:
        server.close()


def _run(config: TrainingConfig, server: ProgressServer, *, local: bool) -> None:
    run_directory = RunDirectory(config.run_directory)
    reporter = Reporter(server, run_directory, total_steps=config.training.total_steps, sinks=build_sinks(config))
    try:
        reporter.stage("preparing", "checking model, data and rewards")
        check_batches(config)
        check_rollout(config)
        check_functions(config)
        tokenizer = load_tokenizer(config.model)
        architecture = load_config(config.model)
        path = config.model.path or "fromSeed"
        validate_tokenizer(tokenizer, architecture.get_text_config().vocab_size, path=path)
        warn_about_end_of_text(tokenizer, find_eos_tokens(config.model, architecture), path=path)
        critic_architecture = load_critic_config(config, tokenizer)
        check_lengths(config, architecture)
        folder = Path(config.run_directory)
        prompts = PromptDataset.load(config.data, tokenizer, seed=config.training.seed, run_directory=folder)
        validation = (
            ValidationSet.load(config.data, tokenizer, seed=config.training.seed, run_directory=folder)
            if config.training.validation
            else ValidationSet()
        )
        check_validation(config, len(validation.prompts))
        config = resolve_total_steps(config, len(prompts))
        reporter.set_total_steps(config.training.total_steps)
        run_directory.write_config(config)

        with Scorer(config.rewards) as scorer:
            reporter.stage("preparing", "joining Ray")
            join_ray(config, local=local)
            with Termination() as termination:
                workers = WorkerGroup(TrainWorker, config, training_pods(config))
                Trainer(
                    config,
                    workers=workers,
                    engines=build_engines(config, workers),
                    prompts=prompts,
                    validation=validation,
                    tokenizer=tokenizer,
                    scorer=scorer,
                    reporter=reporter,
                    run=run_directory,
                    shape=find_shape(architecture),
                    critic_shape=find_shape(critic_architecture) if critic_architecture else None,
                    termination=termination,
                ).run()
    finally:
        leave_ray(config)  # no worker's output comes after the last report
        reporter.print_last()


def check_functions(config: TrainingConfig) -> None:
    """Raises ValueError if a user-defined function or environment cannot be imported."""
    load_estimator(config.algorithm)
    PolicyObjective(config.algorithm, max_response_length=config.data.max_response_length)
    if config.rollout.multi_turn:
        load_environment(config.rollout.multi_turn)


def load_critic_config(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig | None:
    """Load the critic's model config. None: no critic. Raises ValueError if it does not support the policy's tokens."""
    if config.algorithm.critic is None:
        return None
    start = resolve_critic_model(config)
    architecture = load_config(start)
    if start != config.model:
        validate_critic_tokenizer(tokenizer, architecture.get_text_config().vocab_size, path=start.path or "")
    return architecture


def resolve_total_steps(config: TrainingConfig, prompts: int) -> TrainingConfig:
    """Compute total_steps from training.totalEpochs, if it is set. Raises ValueError if the result is 0."""
    training = config.training
    if training.total_epochs is None:
        return config
    steps = training.total_epochs * prompts // training.train_batch_size
    if steps == 0:
        raise ValueError(
            f"training.totalEpochs: {training.total_epochs} x {prompts} prompts do not fill one batch of "
            f"trainBatchSize {training.train_batch_size}: reduce trainBatchSize or increase totalEpochs."
        )
    return config.model_copy(update={"training": training.model_copy(update={"total_steps": steps})})


def check_batches(config: TrainingConfig) -> None:
    """Raises ValueError if the ranks cannot form groups, or if a batch cannot be split equally between them."""
    training = config.training
    mini, shares = training.ppo_mini_batch_size, data_parallel_size(training, count_train_workers(config))
    size = training.context_parallel_size
    groups = f"{shares} ranks" if size == 1 else f"{shares} groups of {size} ranks (contextParallelSize)"
    if training.train_batch_size % mini:
        raise ValueError(
            f"training.trainBatchSize: {training.train_batch_size} is not divisible by ppoMiniBatchSize {mini}: use a "
            f"multiple of {mini}."
        )
    if mini % shares:
        raise ValueError(f"training.ppoMiniBatchSize: {mini} is not divisible by {groups}: use a multiple of {shares}.")
    if training.warmup and training.warmup.batch_size % shares:
        raise ValueError(
            f"training.warmup.batchSize: {training.warmup.batch_size} is not divisible by {groups}: use a multiple of "
            f"{shares}."
        )


def check_lengths(config: TrainingConfig, architecture: PreTrainedConfig) -> None:
    """Raises ValueError if the model does not support the rollout engine or the sequence length."""
    text = architecture.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    devices = config.rollout_devices_per_worker if config.rollout_workers else config.devices_per_worker
    if config.rollout.engine == "vllm" and devices == 0 and head_size < MIN_HEAD_SIZE:
        raise ValueError(
            f"model: attention heads of {head_size} dimensions are not supported by vLLM on CPUs (minimum "
            f"{MIN_HEAD_SIZE}): use a model with wider heads, or rollout.engine: transformers."
        )
    max_length = getattr(text, "max_position_embeddings", None)
    requested = config.data.max_prompt_length + config.data.max_response_length
    if max_length is not None and requested > max_length:
        raise ValueError(
            f"data: maxPromptLength {config.data.max_prompt_length} and maxResponseLength "
            f"{config.data.max_response_length} add up to {requested} tokens, but the model supports {max_length}: "
            "reduce one of them."
        )


def check_validation(config: TrainingConfig, prompts: int) -> None:
    """Raises ValueError if validation is configured without a validation set."""
    validation = config.training.validation
    if validation and (validation.test_freq > 0 or validation.before_train) and prompts == 0:
        raise ValueError(
            "training.validation: the data has no validation set: set data.valFiles or data.hub.valSplit, or remove "
            "validation."
        )
