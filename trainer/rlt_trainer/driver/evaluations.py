"""When a training evaluates its suites: between two steps, or beside the update of the next step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.dataset import EvaluationSet
from rlt_trainer.data.suites import Suite, list_due
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.generation import RolloutGenerator
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.suite_scores import score_suites
from rlt_trainer.evaluation.retention import find_superseded
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.spans import TESTING
from rlt_trainer.telemetry.stopwatch import Stopwatch

_log = logging.getLogger(__name__)


class Evaluations:
    """The evaluations of a training.

    Separate engines have the weights of step N until the weight sync of step N + 1. `start` sends the requests of the
    suites when the batch of step N + 1 is complete, so that a run has the same batches with and without suites.
    `finish` waits for the responses before the weight sync, and completes the row of step N. A program that ends before
    leaves a row without the values of suites. `resume` finds it, and the weights of the checkpoint are evaluated again.

    Colocated engines use the devices of the train workers, so the training waits.
    """

    def __init__(
        self,
        config: TrainingConfig,
        suites: Sequence[Suite[EvaluationSet]],
        generator: RolloutGenerator,
        engines: Engines,
        *,
        reporter: Reporter,
        run: RunDirectory,
        stopwatch: Stopwatch,
    ) -> None:
        self._config = config
        self._suites = suites
        self._generator = generator
        self._engines = engines
        self._reporter = reporter
        self._run = run
        self._stopwatch = stopwatch
        self._next: tuple[int, Sequence[Suite[EvaluationSet]]] | None = None
        """Step and suites of the evaluation beside the next step."""
        self._batches: Iterator[RolloutBatch] | None = None
        """The responses of this evaluation, once it has started."""

    def resume(self, step: int) -> None:
        """Evaluate the weights after `step`, with which the program starts, on the suites whose values are missing.

        The checkpoint of another run has no row: its suites are due before the first step alone.
        """
        row = self._reporter.row
        due = [each for each in self._list_due(step) if f"val/{each.name}/failed" not in row]
        if not due or (step > 0 and not row):
            return
        if self._can_wait(step):
            self._next = step, due
        else:
            self._reporter.evaluation(step, self._score(step, due, self._generator.start_suites(due)))
            self._stopwatch.take()  # no step has these spans

    def evaluate(self, step: int, *, is_saved: bool) -> dict[str, float]:
        """Evaluate the weights after `step`. Return the values. Empty: `start` and `finish` do it in the next step.

        `is_saved`: a checkpoint of the step follows. With keepBest it has the score of the first suite.
        """
        due = self._list_due(step)
        if not due:
            return {}
        needs_score = is_saved and self._config.checkpoint.keep_best and due[0] is self._suites[0]
        if self._can_wait(step) and not needs_score:
            self._next = step, due
            return {}
        self._generator.send_ahead(step + 1)  # the engines generate its responses beside the evaluation
        with self._stopwatch.measure(TESTING):
            return self._score(step, due, self._generator.start_suites(due))

    def start(self) -> None:
        """Start the evaluation of the step before, after the batch of this step is complete."""
        if self._next:
            self._batches = self._generator.start_suites(self._next[1])

    def finish(self) -> None:
        """Wait for the evaluation of the step before, and report it. The engines still have the weights of that step.

        If all engines have ended, those that start again get the weights of the train workers, which are newer: the
        values are then left out.
        """
        if self._next is None or self._batches is None:
            return
        step, suites = self._next
        self._next = None
        with self._stopwatch.measure(TESTING):
            syncs = self._engines.syncs
            batches = list(self._batches)
            if self._engines.syncs > syncs:
                _log.warning("step %s has no values of its suites: all rollout engines have ended", step)
            else:
                self._reporter.evaluation(step, self._score(step, suites, batches))

    def _list_due(self, step: int) -> list[Suite[EvaluationSet]]:
        return list_due(self._suites, step, self._config.training.total_steps)

    def _can_wait(self, step: int) -> bool:
        """Whether the next step can be beside the evaluation of `step`."""
        return self._config.rollout.mode == "separate" and step < self._config.training.total_steps

    def _score(
        self, step: int, suites: Sequence[Suite[EvaluationSet]], batches: Iterable[RolloutBatch]
    ) -> dict[str, float]:
        """Return the metrics of the suites, and write their scores to the run directory."""
        return score_suites(
            step,
            suites,
            batches,
            self._run,
            compare=[suite.name for suite in suites if suite.settings.before_train],
            find_superseded=find_superseded,
        )
