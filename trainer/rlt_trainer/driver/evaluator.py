"""spec.evaluateOnly: the suites on models that exist, without train workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing

from transformers import PreTrainedTokenizerBase

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.dataset import EvaluationSet
from rlt_trainer.data.suites import Suite
from rlt_trainer.driver.batch_builder import BatchBuilder
from rlt_trainer.driver.engine_processes import EngineProcesses
from rlt_trainer.driver.evaluated_models import EvaluatedModel
from rlt_trainer.driver.gates import judge_suites
from rlt_trainer.driver.loaded_engines import LoadedEngines
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.rollouts import RolloutSampler
from rlt_trainer.driver.suite_responses import start_responses
from rlt_trainer.driver.suite_scores import score_suites
from rlt_trainer.driver.termination import Termination
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.run_history import has_metrics
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.stopwatch import Stopwatch

TERMINATED = "The evaluation was terminated (SIGTERM). The job continues with the models that have no results yet."


class Evaluator:
    """Evaluates models one after the other. Each has separate engines, which load it."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        models: Sequence[EvaluatedModel],
        open_processes: Callable[[TrainingConfig], AbstractContextManager[EngineProcesses]],
        suites: Sequence[Suite[EvaluationSet]],
        tokenizer: PreTrainedTokenizerBase,
        scorer: Scorer,
        reporter: Reporter,
        run: RunDirectory,
        server: ProgressServer,
        termination: Termination,
    ) -> None:
        """`open_processes`: opens the processes of the engines for a config with the files of a model."""
        self._config = config
        self._models = models
        self._open_processes = open_processes
        self._suites = suites
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._reporter = reporter
        self._run = run
        self._server = server
        self._termination = termination

    def run(self) -> None:
        """Evaluate the models that have no metrics yet, and judge the gates of the last one."""
        for count, model in enumerate(self._models, 1):
            if not has_metrics(self._run.path, model.step):
                self._evaluate(model)
            self._reporter.evaluated_models(count)
        last = self._models[-1].step
        self._reporter.gates(last, judge_suites(self._run.path, self._config.evaluation, last))
        self._reporter.stage("finished", f"{len(self._models)} models evaluated")

    def _evaluate(self, model: EvaluatedModel) -> None:
        name = f"step {model.step}" if model.checkpoint else "the model of the job"
        self._reporter.stage("evaluating", f"loading {name}")
        started = time.monotonic()
        with (
            model.prepare(self._config) as config,
            self._open_processes(config) as processes,
            LoadedEngines(config, processes, self._termination) as engines,
        ):
            engines.load(model.step)
            self._server.count_requests = engines.count_requests
            self._server.read_engine_metrics = engines.read_metrics
            self._reporter.stage("evaluating", f"{name} on {len(self._suites)} suites")
            metrics = self._score(config, engines, model.step)
            engines.close()
        self._reporter.evaluated_model(model.step, metrics | {"timing_s/testing": time.monotonic() - started})

    def _score(self, config: TrainingConfig, engines: LoadedEngines, step: int) -> dict[str, float]:
        sampler = RolloutSampler(
            config.rollout.multi_turn,
            config.data,
            engines=engines,
            tokenizer=self._tokenizer,
            scorer=self._scorer,
            stopwatch=Stopwatch(),
        )
        with closing(sampler):
            batches = start_responses(
                self._suites,
                engines=engines,
                sampler=sampler,
                batches=BatchBuilder(config, self._scorer, None),
                seed=config.training.seed,
            )
            has_base = self._models[0].step == 0
            return score_suites(
                step,
                self._suites,
                batches,
                self._run,
                compare=[suite.name for suite in self._suites if has_base],
                find_superseded=lambda folder, last: [],
            )
