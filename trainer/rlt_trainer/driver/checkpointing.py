"""When a run saves a checkpoint, which checkpoint it resumes from, and how it stops after SIGTERM."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.resume import Resumed
from rlt_trainer.checkpoint.saver import SaveOutcome
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import compare_fingerprints
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import Terminated
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.workers.train_worker import TrainWorker

_log = logging.getLogger(__name__)

SCORES = ("reward/mean", "rewards/accuracies")
"""The score of a suite, in its metrics val/SUITE/…. The first one that is present counts."""


class BatchSource(Protocol):
    """Where the rows of each step come from. Its state is a part of the driver state."""

    def restore(self, consumed: int, ahead: Mapping[str, Tensor]) -> None:
        """Restore the state of a checkpoint. `consumed`: number of rows taken from the data that are not in `ahead`."""
        ...

    def pack_ahead(self, step: int) -> dict[str, Tensor]:
        """Return what is ready for steps after `step`."""
        ...


class Checkpoints:
    """The driver's part of checkpoints: the driver state. The train workers save their shards."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: WorkerGroup[TrainWorker],
        run: RunDirectory,
        reporter: Reporter,
        source: BatchSource,
        kl_controller: KlController | None = None,
        termination: Termination,
        data: Mapping[str, Any],
    ) -> None:
        """`data` is the fingerprint of the prompts."""
        self._config = config
        self._workers = workers
        self._run = run
        self._reporter = reporter
        self._source = source
        self._kl_controller = kl_controller
        self._termination = termination
        self._data = data
        self._state: dict[str, Any] = {}
        self.complete_step(consumed=0)
        self._saved_step: int | None = None
        self.latest: Path | None = None
        """The latest complete checkpoint."""

    def resume(self) -> int | None:
        """Load the checkpoint that checkpoint.resume selects, and return its step. None: there is no such checkpoint.

        Raises ValueError if the checkpoint was saved with other data. With resumeFromPath, such a checkpoint is loaded,
        and the run starts with the first prompt of its data.
        """
        resumed: Resumed | None = self._workers.all(TrainWorker.resume, self._run.checkpoints)[0]
        if resumed is None:
            return None
        for warning in resumed.warnings:
            _log.warning("%s", warning)
        self._reporter.stage("preparing", f"resuming from {self._run.locate(resumed.directory)}")
        self._state = dict(resumed.driver.values)
        if self._has_same_data(resumed.directory):
            self._source.restore(self._state["consumed"], resumed.driver.tensors)
        else:
            self._state |= {"consumed": 0, "data": self._data}
        if self._kl_controller is not None and "kl_controller" in self._state:
            self._kl_controller.load_state_dict(self._state["kl_controller"])
        self.latest = resumed.directory
        self._saved_step = resumed.step
        metrics = self._state.pop("metrics", {})
        own = resumed.directory.parent == self._run.checkpoints
        self._reporter.resumed(resumed.step, metrics if own else None)
        return resumed.step

    def complete_step(self, consumed: int) -> None:
        """Update the driver state after a step. `consumed`: number of prompts taken from the data set."""
        controller = self._kl_controller
        self._state = {"consumed": consumed, "data": self._data}
        if controller is not None:
            self._state["kl_controller"] = controller.state_dict()

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`."""
        every = self._config.checkpoint.save_freq
        return every > 0 and (step % every == 0 or step == self._config.training.total_steps)

    def save(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Save `step`, or start a save in the background.

        `metrics`: the step's, without timings. The checkpoint contains them, because the run can end before it
        writes them to metrics.jsonl. The score of the first suite among them selects the best checkpoint.
        """
        self._saved_step = step
        values = self._state | ({"metrics": dict(metrics)} if metrics else {})
        state = DriverState(values, self._source.pack_ahead(step))
        score = self._find_score(metrics or {})
        self._reporter.upload_results()  # a resumed run continues them
        ranks = len(self._workers)
        states = [state, *[DriverState()] * (ranks - 1)]  # rank 0 writes it, and it can be large
        leases = [self._run.lease] * ranks
        self._report(self._workers.each(TrainWorker.save, [step] * ranks, states, [score] * ranks, leases)[0])

    def report_finished_saves(self, *, wait: bool = False) -> None:
        """Report the save in the background if it has ended. `wait` until it ends."""
        self._report(self._workers.all(TrainWorker.finished_saves, wait=wait)[0])

    def stop_if_requested(self, done: int) -> None:
        """After SIGTERM, save the state of step `done`, the last completed one, and raise Terminated."""
        if not self._termination.requested:
            return
        if self._config.checkpoint.save_freq > 0 and self._saved_step != done:
            self.save(done)
        self.report_finished_saves(wait=True)
        raise Terminated(
            f"Training was terminated (SIGTERM) after step {done}. "
            + (
                f"It can resume from {self.describe_latest()}."
                if self.latest
                else "No checkpoint: checkpoint.saveFreq is off."
            )
        )

    def describe_latest(self) -> str | None:
        """Return the path of the latest complete checkpoint, or its URL in the bucket. None: there is none."""
        return self._run.locate(self.latest) if self.latest else None

    def _find_score(self, metrics: Mapping[str, float]) -> float | None:
        """The score of the first suite. None: it is not due at this step, or the job has none."""
        names = [f"val/{suite.name}/{score}" for suite in self._config.evaluation[:1] for score in SCORES]
        return next((metrics[name] for name in names if name in metrics), None)

    def _has_same_data(self, directory: Path) -> bool:
        """Whether the checkpoint was saved with this run's data. Raises ValueError if not, unless resumeFromPath."""
        difference = compare_fingerprints(self._state["data"], self._data)
        if difference is None:
            return True
        if directory != Path(self._config.checkpoint.resume_from_path or ""):
            raise ValueError(
                f"{directory} was saved by a run with other data: {difference}. Restore the data, or start a job with "
                "this folder as checkpoint.resumeFromPath, which starts with the first prompt of its data."
            )
        _log.warning(
            "%s was saved by a run with other data: %s: starting with the first prompt of this run's data",
            directory,
            difference,
        )
        return False

    def _report(self, outcomes: Sequence[SaveOutcome]) -> None:
        for outcome in outcomes:
            if outcome.error is not None:
                _log.warning("%s", outcome.error)
                self._reporter.checkpoint_failed(outcome.error)
                continue
            self.latest = self._run.checkpoints / f"step-{outcome.step}"
            self._reporter.checkpoint(outcome.step)
