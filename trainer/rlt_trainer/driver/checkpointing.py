"""When a run saves itself, what it goes on from, and how it ends when it is asked to."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.resume import Resumed
from rlt_trainer.checkpoint.saver import SaveOutcome
from rlt_trainer.data.dataset import other_data
from rlt_trainer.driver.generation import RolloutGenerator
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.termination import Termination
from rlt_trainer.driver.worker_group import TrainWorkers
from rlt_trainer.errors import Terminated
from rlt_trainer.telemetry.run_directory import RunDirectory

_log = logging.getLogger(__name__)


class Checkpoints:
    """The driver's part: the ranks save their shards, this the little that the driver remembers."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: TrainWorkers,
        run: RunDirectory,
        reporter: Reporter,
        generation: RolloutGenerator,
        kl_controller: KlController | None,
        termination: Termination,
        data: Mapping[str, Any],
    ) -> None:
        """`data` is the fingerprint of the prompts."""
        self._config = config
        self._workers = workers
        self._run = run
        self._reporter = reporter
        self._generation = generation
        self._kl_controller = kl_controller
        self._termination = termination
        self._data = data
        self._state: dict[str, Any] = {}
        self.completed(consumed=0)
        self._saved_step: int | None = None
        self.latest: Path | None = None
        """The newest whole checkpoint."""

    def resume(self) -> int | None:
        """Load the checkpoint to go on from, if there is one and it is wanted. Returns its step.

        Raises ValueError for one that was made on other data; with resumeFromPath the data begins anew.
        """
        resumed: Resumed | None = self._workers.all("resume", self._run.checkpoints)[0]
        if resumed is None:
            return None
        for warning in resumed.warnings:
            _log.warning("%s", warning)
        self._reporter.stage("preparing", f"resuming from {resumed.directory}")
        self._state = dict(resumed.driver.values)
        if self._is_of_these_data(resumed.directory):
            self._generation.restore(self._state["consumed"], resumed.driver.tensors)
        else:
            self._state |= {"consumed": 0, "data": self._data}
        if self._kl_controller is not None and "kl_controller" in self._state:
            self._kl_controller.load_state_dict(self._state["kl_controller"])
        self.latest, self._saved_step = resumed.directory, resumed.step
        self._reporter.resumed(resumed.step)
        return resumed.step

    def completed(self, consumed: int) -> None:
        """A step is done, which took the data set's prompts up to `consumed`."""
        controller = self._kl_controller
        self._state = {"consumed": consumed, "data": self._data}
        if controller is not None:
            self._state["kl_controller"] = controller.state_dict()

    def is_due(self, step: int) -> bool:
        """Whether there is to be a checkpoint after `step`."""
        every = self._config.checkpoint.save_freq
        return every > 0 and (step % every == 0 or step == self._config.training.total_steps)

    def save(self, step: int, score: float | None = None) -> None:
        """Save `step`, or begin to. `score` is that of its weights on the validation set, if they were validated."""
        self._saved_step = step
        self._tell(self._workers.all("save", step, DriverState(self._state, self._generation.ahead(step)), score)[0])

    def tell_finished(self, *, wait: bool = False) -> None:
        """Tell of the save in the background, if it has ended; `wait` for that."""
        self._tell(self._workers.all("finished_saves", wait)[0])

    def end_if_asked(self, done: int) -> None:
        """After SIGTERM: save what step `done` has made, and raise Terminated."""
        if not self._termination.requested:
            return
        if self._config.checkpoint.save_freq > 0 and self._saved_step != done:
            self.save(done)
        self.tell_finished(wait=True)
        raise Terminated(
            f"The training was asked to end (SIGTERM) after step {done}. "
            + (f"It can go on from {self.latest}." if self.latest else "checkpoint.saveFreq is off: nothing is saved.")
        )

    def _is_of_these_data(self, directory: Path) -> bool:
        """False: the job is to go on from there on other data. Raises ValueError where it did not ask to."""
        saved = self._state.get("data")  # the first checkpoints had none
        difference = other_data(saved, self._data) if saved is not None else None
        if difference is None:
            return True
        if directory != Path(self._config.checkpoint.resume_from_path or ""):
            raise ValueError(
                f"{directory} was saved by a run on other data: {difference}. Give the data back, or start a job that "
                "has this folder as checkpoint.resumeFromPath: it begins with the first of its own prompts."
            )
        _log.warning("%s was saved by a run on other data: %s. This run begins with its first.", directory, difference)
        return False

    def _tell(self, outcomes: Sequence[SaveOutcome]) -> None:
        for outcome in outcomes:
            if outcome.problem is not None:
                _log.warning("%s", outcome.problem)
                continue
            self.latest = self._run.checkpoints / f"step-{outcome.step}"
            self._reporter.checkpoint(outcome.step)
