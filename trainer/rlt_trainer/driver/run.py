"""The driver: validates the input, joins Ray, starts the workers, and runs the training loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from rlt_api.blocks.metric_rules import build_limits
from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.report.driver_report import METRICS_PORT
from rlt_pod.report.driver_server import read_token
from rlt_trainer.cluster.placement import reserve_each
from rlt_trainer.cluster.pods import list_accelerators, training_pods
from rlt_trainer.cluster.session import join_ray, leave_ray
from rlt_trainer.cluster.stack_signal import write_stacks_on_signal
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset
from rlt_trainer.data.pairs import PairSet
from rlt_trainer.data.suites import load_suites
from rlt_trainer.data.tokenizer import (
    load_tokenizer,
    validate_critic_tokenizer,
    validate_tokenizer,
    warn_about_end_of_text,
)
from rlt_trainer.driver.engine_processes import build_processes, open_processes
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.evaluated_models import list_models
from rlt_trainer.driver.evaluator import TERMINATED, Evaluator
from rlt_trainer.driver.input_validation import (
    validate_batches,
    validate_chat_template,
    validate_engine,
    validate_functions,
    validate_lengths,
    validate_parsers,
    validate_rollout,
    validate_teacher,
)
from rlt_trainer.driver.loop import Trainer
from rlt_trainer.driver.preferences import PreferenceTrainer
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.run_outputs import open_results, open_run_directory
from rlt_trainer.driver.termination import Termination
from rlt_trainer.environments.openenv import check_openenv
from rlt_trainer.environments.toolbox import describe_tools
from rlt_trainer.extras import validate_extras
from rlt_trainer.policy.config import find_eos_tokens, load_config, load_image_processor, resolve_critic_model
from rlt_trainer.policy.families import (
    validate_adapters,
    validate_critic_family,
    validate_expert_parallel,
    validate_family,
    validate_router_bias,
    validate_router_loss,
    validate_router_replay,
)
from rlt_trainer.policy.liger import validate_liger
from rlt_trainer.publishing.publish import open_places
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.flops import find_shape
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.sinks import build_sinks
from rlt_trainer.telemetry.traces import open_traces
from rlt_trainer.workers.train_worker import TrainWorker


def run(
    config: TrainingConfig, *, local: bool, port: int = METRICS_PORT, execution: tuple[int, str] | None = None
) -> None:
    """Run the whole training. `local`: start Ray on this machine instead of joining a Ray cluster. `port` serves the
    job's metrics; 0 chooses a free one. `execution`: attempt and holder of the lease to take; None: without a lease.

    The last line on standard output is PROGRESS_PREFIX and the last report, also after an error. Raises ValueError or
    FileNotFoundError for invalid input, TrainingError if the training cannot continue, and Terminated after SIGTERM.
    """
    write_stacks_on_signal()
    server = ProgressServer(
        0 if local else port,
        run_directory=config.run_directory,
        job=config.job,
        namespace=config.namespace,
        token=None if local else read_token(),
    )
    server.start()
    try:
        _run(config, server, local=local, execution=execution)
    finally:
        server.close()


def _run(config: TrainingConfig, server: ProgressServer, *, local: bool, execution: tuple[int, str] | None) -> None:
    results = open_results(config, execution)
    run_directory = open_run_directory(Path(config.run_directory), execution, results)
    reporter = Reporter(
        server,
        run_directory,
        total_steps=config.training.total_steps,
        sinks=build_sinks(config),
        traces=open_traces(job=config.job, namespace=config.namespace),
        limits=build_limits(config.observability.metric_rules),
        devices=list_accelerators(config),
        results=results,
    )
    try:
        reporter.stage("preparing", "checking model, data and rewards")
        validate_extras(config)
        tokenizer = load_tokenizer(config.model)
        architecture = load_config(config.model)
        if config.evaluate_only is None:
            _validate_training(config, architecture)
        for place in open_places(config):
            place.check()
        path = config.model.path or "fromSeed"
        validate_tokenizer(tokenizer, architecture.get_text_config().vocab_size, path=path)
        warn_about_end_of_text(tokenizer, find_eos_tokens(config.model, architecture), path=path)
        validate_lengths(config, architecture)
        run_loop = _choose_loop(config)
        with results.complete() if results else nullcontext():
            run_loop(_Run(config, server, reporter, run_directory, tokenizer, architecture, local=local))
    finally:
        leave_ray(config)  # no worker's output comes after the last report
        reporter.print_last()


def _validate_training(config: TrainingConfig, architecture: PreTrainedConfig) -> None:
    """Raises ValueError if the train workers do not support the model or the batches."""
    validate_batches(config)
    validate_family(architecture, packed=config.model.use_remove_padding)
    validate_expert_parallel(architecture, config.training.expert_parallel_size)
    if config.model.use_liger:
        validate_liger(architecture)
    if config.model.lora is not None:
        validate_adapters(architecture, config.model.lora)


def _choose_loop(config: TrainingConfig) -> Callable[[_Run], None]:
    if config.evaluate_only is not None:
        return _run_evaluation
    return _run_reinforcement if config.algorithm.dpo is None else _run_preferences


@dataclass(frozen=True)
class _Run:
    """What every run has: a validated policy and where it reports."""

    config: TrainingConfig
    server: ProgressServer
    reporter: Reporter
    directory: RunDirectory
    tokenizer: PreTrainedTokenizerBase
    architecture: PreTrainedConfig
    local: bool

    def resolve_config(self, rows: int) -> TrainingConfig:
        """Resolve the number of steps with the number of prompts or pairs, and write the config."""
        config = resolve_total_steps(self.config, rows)
        self.reporter.set_total_steps(config.training.total_steps)
        self.directory.write_config(config)
        return config

    def join_ray(self) -> None:
        """Join the Ray cluster."""
        self.reporter.stage("preparing", "joining Ray")
        join_ray(self.config, local=self.local)


def _run_preferences(run: _Run) -> None:
    load_image_processor(run.config)  # rejects a model that needs images
    training = PairSet.load(run.config.data, run.tokenizer)
    suites = load_suites(run.config, lambda data: PairSet.load(data, run.tokenizer))
    config = run.resolve_config(len(training.pairs))
    run.join_ray()
    with Termination() as termination:
        PreferenceTrainer(
            config,
            workers=WorkerGroup(TrainWorker, config, training_pods(config)),
            training=training,
            suites=suites,
            tokenizer=run.tokenizer,
            reporter=run.reporter,
            run=run.directory,
            shape=find_shape(run.architecture),
            termination=termination,
        ).run()


def _run_evaluation(run: _Run) -> None:
    config = run.config
    models = list_models(config)
    validate_rollout(config)
    validate_engine(config, run.architecture)
    validate_functions(config)
    validate_chat_template(config, run.tokenizer)
    validate_parsers(config, run.tokenizer)
    sources = _list_sources(run)
    suites = load_suites(config, lambda data: EvaluationSet.load(data, run.tokenizer, **sources))
    run.directory.write_config(config)
    run.reporter.set_total_steps(len(models))
    with Scorer(config.rewards) as scorer:
        scorer.validate_sandbox(config.rollout.multi_turn)
        scorer.validate_judges(suites[0].rows.prompts[0])
        check_openenv(config.rollout.multi_turn, suites[0].rows.prompts[0])
        run.join_ray()
        with Termination(TERMINATED) as termination:
            pods = training_pods(config)
            placement_groups = reserve_each(pods)
            Evaluator(
                config,
                models=models,
                open_processes=lambda loaded: open_processes(loaded, pods, placement_groups),
                suites=suites,
                tokenizer=run.tokenizer,
                scorer=scorer,
                reporter=run.reporter,
                run=run.directory,
                server=run.server,
                termination=termination,
            ).run()


def _list_sources(run: _Run) -> dict[str, Any]:
    """What the prompts need besides the data and the tokenizer."""
    config = run.config
    return {
        "seed": config.training.seed,
        "run_directory": Path(config.run_directory),
        "tools": describe_tools(config.rollout.multi_turn),
        "processor": load_image_processor(config),
    }


def _run_reinforcement(run: _Run) -> None:
    config = run.config
    tokenizer = run.tokenizer
    architecture = run.architecture
    validate_rollout(config)
    validate_engine(config, architecture)
    validate_functions(config)
    validate_router_loss(architecture, config.algorithm.router_aux_loss_coef)
    validate_router_bias(architecture, config.algorithm.router_bias_update_rate)
    validate_router_replay(architecture, config.algorithm.router_replay)
    validate_chat_template(config, tokenizer)
    validate_parsers(config, tokenizer)
    validate_teacher(config, tokenizer)
    critic_architecture = load_critic_config(config, tokenizer)
    sources = _list_sources(run)
    prompts = PromptDataset.load(config.data, tokenizer, **sources)
    suites = load_suites(config, lambda data: EvaluationSet.load(data, tokenizer, **sources))
    config = run.resolve_config(len(prompts))
    with Scorer(config.rewards) as scorer:
        scorer.validate_sandbox(config.rollout.multi_turn)
        scorer.validate_judges(prompts.take(0, 1)[0])
        check_openenv(config.rollout.multi_turn, prompts.take(0, 1)[0])
        run.join_ray()
        with Termination() as termination:
            workers = WorkerGroup(TrainWorker, config, training_pods(config))
            with Engines(config, workers, build_processes(config, workers), termination) as engines:
                run.server.count_requests = engines.count_requests
                run.server.read_engine_metrics = engines.read_metrics
                Trainer(
                    config,
                    workers=workers,
                    engines=engines,
                    prompts=prompts,
                    suites=suites,
                    tokenizer=tokenizer,
                    scorer=scorer,
                    reporter=run.reporter,
                    run=run.directory,
                    shape=find_shape(architecture),
                    critic_shape=find_shape(critic_architecture) if critic_architecture else None,
                    termination=termination,
                ).run()


def load_critic_config(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig | None:
    """Load the critic's model config. None: no critic.

    Raises ValueError if the model cannot be a critic or does not support the policy's tokens.
    """
    if config.algorithm.critic is None:
        return None
    start = resolve_critic_model(config)
    architecture = load_config(start)
    validate_critic_family(architecture, packed=config.algorithm.critic.use_remove_padding)
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
