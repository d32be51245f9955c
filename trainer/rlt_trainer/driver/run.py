"""The driver: checks what can be checked before anything is started, then Ray, the ranks and the loop."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from rlt_api.driver_report import METRICS_PORT
from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.dataset import PromptDataset, ValidationSet
from rlt_trainer.data.tokenizer import check_critic, check_end_of_text, check_tokenizer, load_tokenizer
from rlt_trainer.driver.engines import rollout_engines
from rlt_trainer.driver.experience import estimator
from rlt_trainer.driver.loop import Trainer
from rlt_trainer.driver.ray_session import join_ray, leave_ray
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.rollout_checks import check_rollout
from rlt_trainer.driver.termination import Termination
from rlt_trainer.driver.worker_group import TrainWorkers, world_size
from rlt_trainer.environments.registry import load_environment
from rlt_trainer.policy.config import critic_model, end_tokens, load_config
from rlt_trainer.policy.mesh import data_parallel_size
from rlt_trainer.policy.policy_objective import PolicyObjective
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.flops import shape_of
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.sinks import sinks_of

MIN_HEAD_SIZE = 32
"""The smallest head of vLLM's attention on CPUs (vLLM 0.32.0, vllm/v1/attention/backends/cpu_attn.py)."""


def run(config: TrainingConfig, *, local: bool) -> None:
    """Train to the end. `local` starts a Ray of its own on this machine instead of joining the cluster's.

    The last line on standard output is PROGRESS_PREFIX and the last report, also when an error is raised: ValueError
    or FileNotFoundError where the user's input is at fault, TrainingError where the training cannot go on, Terminated
    after SIGTERM.
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
    reporter = Reporter(server, run_directory, total_steps=config.training.total_steps, sinks=sinks_of(config))
    try:
        reporter.stage("preparing", "checking model, data and rewards")
        check_batches(config)
        check_rollout(config)
        check_functions(config)
        tokenizer = load_tokenizer(config.model)
        architecture = load_config(config.model)
        path = config.model.path or "fromSeed"
        check_tokenizer(tokenizer, architecture.get_text_config().vocab_size, path=path)
        check_end_of_text(tokenizer, end_tokens(config.model, architecture), path=path)
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
        config = counted(config, len(prompts))
        reporter.planned(config.training.total_steps)
        run_directory.write_config(config)

        with Scorer(config.rewards) as scorer:
            reporter.stage("preparing", "joining Ray")
            join_ray(config, local=local)
            with Termination() as termination:
                workers = TrainWorkers(config)
                Trainer(
                    config,
                    workers=workers,
                    engines=rollout_engines(config, workers),
                    prompts=prompts,
                    validation=validation,
                    tokenizer=tokenizer,
                    scorer=scorer,
                    reporter=reporter,
                    run=run_directory,
                    shape=shape_of(architecture),
                    critic_shape=shape_of(critic_architecture) if critic_architecture else None,
                    termination=termination,
                ).run()
    finally:
        leave_ray(config)  # no worker's output comes after the last report
        reporter.print_last()


def check_functions(config: TrainingConfig) -> None:
    """Raises ValueError for functions and an environment of the user's own that cannot be imported."""
    estimator(config.algorithm)
    PolicyObjective(config.algorithm, max_response_length=config.data.max_response_length)
    if config.rollout.multi_turn:
        load_environment(config.rollout.multi_turn)


def load_critic_config(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig | None:
    """The critic's architecture, if there is one. Raises ValueError where it cannot read the policy's tokens."""
    if config.algorithm.critic is None:
        return None
    start = critic_model(config)
    architecture = load_config(start)
    if start != config.model:
        check_critic(tokenizer, architecture.get_text_config().vocab_size, path=start.path or "")
    return architecture


def counted(config: TrainingConfig, prompts: int) -> TrainingConfig:
    """The config with the number of steps, where training.totalEpochs is given. Raises ValueError if that is none."""
    training = config.training
    if training.total_epochs is None:
        return config
    steps = training.total_epochs * prompts // training.train_batch_size
    if steps == 0:
        raise ValueError(
            f"training.totalEpochs {training.total_epochs}: {prompts} prompts do not fill one batch of trainBatchSize "
            f"{training.train_batch_size}. Give a smaller trainBatchSize, or more epochs."
        )
    return config.model_copy(update={"training": training.model_copy(update={"total_steps": steps})})


def check_batches(config: TrainingConfig) -> None:
    """Raises ValueError for ranks that cannot be grouped as asked, and for batches that they cannot share equally."""
    training = config.training
    mini, shares = training.ppo_mini_batch_size, data_parallel_size(training, world_size(config))
    size = training.context_parallel_size
    sharing = f"{shares} ranks" if size == 1 else f"{shares} groups of {size} ranks (contextParallelSize)"
    if training.train_batch_size % mini:
        raise ValueError(f"training.ppoMiniBatchSize {mini} must divide trainBatchSize {training.train_batch_size}.")
    if mini % shares:
        raise ValueError(
            f"training.ppoMiniBatchSize {mini} cannot be shared equally by {sharing}: use a multiple of {shares}."
        )
    if training.warmup and training.warmup.batch_size % shares:
        raise ValueError(
            f"training.warmup.batchSize {training.warmup.batch_size} cannot be shared equally by {sharing}: use a "
            f"multiple of {shares}."
        )


def check_lengths(config: TrainingConfig, architecture: PreTrainedConfig) -> None:
    """Raises ValueError for a model that cannot do what is asked."""
    text = architecture.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    devices = config.rollout_devices_per_worker if config.rollout_workers else config.devices_per_worker
    if config.rollout.engine == "vllm" and devices == 0 and head_size < MIN_HEAD_SIZE:
        raise ValueError(
            f"The model's heads have {head_size} dimensions, and vLLM on a CPU needs {MIN_HEAD_SIZE} at least: take "
            "fewer or wider heads, or rollout.engine: transformers."
        )
    longest = getattr(text, "max_position_embeddings", None)
    asked = config.data.max_prompt_length + config.data.max_response_length
    if longest is not None and asked > longest:
        raise ValueError(
            f"data.maxPromptLength {config.data.max_prompt_length} and maxResponseLength "
            f"{config.data.max_response_length} make {asked} tokens, and the model holds {longest}: lower one of them."
        )


def check_validation(config: TrainingConfig, prompts: int) -> None:
    """Raises ValueError for a validation without a validation set."""
    wanted = config.training.validation
    if wanted and (wanted.test_freq > 0 or wanted.before_train) and prompts == 0:
        raise ValueError(
            "training.validation needs a validation set, and the data has none: give data.valFiles or "
            "data.hub.valSplit, or leave validation out."
        )
