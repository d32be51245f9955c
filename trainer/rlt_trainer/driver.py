"""The driver: checks what can be checked before anything is started, then Ray, the ranks and the loop."""

from __future__ import annotations

import os
from pathlib import Path

import ray

from rlt_api.driver_report import METRICS_PORT
from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.seeded_model import load_tokenizer
from rlt_trainer.loop import Trainer
from rlt_trainer.policy.config import load_config
from rlt_trainer.reporter import Reporter
from rlt_trainer.rewards import Scorer
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.workers import Workers, rank_count

MIN_HEAD_SIZE = 32
"""The smallest head of vLLM's attention on CPUs (vLLM 0.32.0, vllm/v1/attention/backends/cpu_attn.py)."""


def run(config: TrainingConfig, *, local: bool) -> None:
    """Train to the end. `local` starts a Ray of its own on this machine instead of joining the cluster's.

    The last line on standard output is PROGRESS_PREFIX and the last report, also when an error is raised: ValueError
    or FileNotFoundError where the user's input is at fault, TrainingError where the training cannot go on.
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
    reporter = Reporter(server, run_directory, total_steps=config.training.total_steps)
    try:
        reporter.stage("preparing", "checking model, data and rewards")
        scorer = Scorer(config.rewards)
        check_batches(config)
        tokenizer = load_tokenizer(config.model)
        check_model(config)
        prompts = PromptDataset.load(
            config.data, tokenizer, seed=config.training.seed, run_directory=Path(config.run_directory)
        )
        run_directory.write_config(config)

        reporter.stage("preparing", "joining Ray")
        _join_ray(config, local=local)
        trainer = Trainer(
            config,
            workers=Workers(config),
            prompts=prompts,
            tokenizer=tokenizer,
            scorer=scorer,
            reporter=reporter,
            run=run_directory,
        )
        trainer.run()
    finally:
        ray.shutdown()  # no worker's output comes after the last report
        reporter.print_last()


def check_batches(config: TrainingConfig) -> None:
    """Raises ValueError for batches that the ranks cannot share equally."""
    training, ranks = config.training, rank_count(config)
    mini = training.ppo_mini_batch_size
    if training.train_batch_size % mini:
        raise ValueError(f"training.ppoMiniBatchSize {mini} must divide trainBatchSize {training.train_batch_size}.")
    if mini % ranks:
        raise ValueError(
            f"training.{'ppoMiniBatchSize' if training.ppo_mini_batch_size else 'trainBatchSize'} {mini} cannot be "
            f"shared equally by {ranks} ranks: use a multiple of {ranks}."
        )
    if training.warmup and training.warmup.batch_size % ranks:
        raise ValueError(
            f"training.warmup.batchSize {training.warmup.batch_size} cannot be shared equally by {ranks} ranks: use a "
            f"multiple of {ranks}."
        )


def check_model(config: TrainingConfig) -> None:
    """Raises ValueError for a model that is not there, or that cannot do what is asked."""
    architecture = load_config(config.model).get_text_config()
    head_size = getattr(architecture, "head_dim", None) or architecture.hidden_size // architecture.num_attention_heads
    if config.rollout.engine == "vllm" and config.devices_per_worker == 0 and head_size < MIN_HEAD_SIZE:
        raise ValueError(
            f"The model's heads have {head_size} dimensions, and vLLM on a CPU needs {MIN_HEAD_SIZE} at least: take "
            "fewer or wider heads, or rollout.engine: transformers."
        )
    longest = getattr(architecture, "max_position_embeddings", None)
    asked = config.data.max_prompt_length + config.data.max_response_length
    if longest is not None and asked > longest:
        raise ValueError(
            f"data.maxPromptLength {config.data.max_prompt_length} and maxResponseLength "
            f"{config.data.max_response_length} make {asked} tokens, and the model holds {longest}: lower one of them."
        )


def _join_ray(config: TrainingConfig, *, local: bool) -> None:
    # The first error of any rank ends the run; those of the others would only hide it.
    os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
    if local:
        ray.init(
            address="local",
            num_cpus=config.workers * config.cpus_per_worker,
            num_gpus=config.workers * config.devices_per_worker,
            include_dashboard=False,
        )
    else:
        ray.init(address="auto")
