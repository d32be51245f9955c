"""When a run saves itself, what it goes on from, and how it ends when it is asked to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.resume import Resumed
from rlt_trainer.checkpoint.saver import SaveOutcome
from rlt_trainer.errors import Terminated
from rlt_trainer.generation import Generation
from rlt_trainer.reporter import Reporter
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.termination import Termination
from rlt_trainer.workers import Workers

_log = logging.getLogger(__name__)


class Checkpoints:
    """The driver's part: the ranks save their shards, this the little that the driver remembers."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: Workers,
        run: RunDirectory,
        reporter: Reporter,
        generation: Generation,
        kl_controller: KlController | None,
        termination: Termination,
    ) -> None:
        self._config = config
        self._workers = workers
        self._run = run
        self._reporter = reporter
        self._generation = generation
        self._kl_controller = kl_controller
        self._termination = termination
        self._state: dict[str, Any] = {}
        self.completed(consumed=0)
        self._saved_step: int | None = None
        self.latest: Path | None = None
        """The newest whole checkpoint."""

    def resume(self) -> int | None:
        """Load the checkpoint to go on from, if there is one and it is wanted. Returns its step."""
        resumed: Resumed | None = self._workers.all("resume", self._run.checkpoints)[0]
        if resumed is None:
            return None
        for warning in resumed.warnings:
            _log.warning("%s", warning)
        self._reporter.stage("preparing", f"resuming from {resumed.directory}")
        self._state = dict(resumed.driver.values)
        self._generation.restore(self._state["consumed"], resumed.driver.tensors)
        if self._kl_controller is not None and "kl_controller" in self._state:
            self._kl_controller.load_state_dict(self._state["kl_controller"])
        self.latest, self._saved_step = resumed.directory, resumed.step
        self._reporter.resumed(resumed.step)
        return resumed.step

    def completed(self, consumed: int) -> None:
        """A step is done, which took the data set's prompts up to `consumed`."""
        controller = self._kl_controller
        self._state = {"consumed": consumed, **({"kl_controller": controller.state_dict()} if controller else {})}

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

    def end_if_asked(self, done: int | None) -> None:
        """After SIGTERM: save what step `done` has made, and raise Terminated. None: the warm-up is not over."""
        if not self._termination.requested:
            return
        if done is None:
            raise Terminated("The training was asked to end (SIGTERM) in the warm-up, of which nothing is saved.")
        if self._config.checkpoint.save_freq > 0 and self._saved_step != done:
            self.save(done)
        self.tell_finished(wait=True)
        raise Terminated(
            f"The training was asked to end (SIGTERM) after step {done}. "
            + (f"It can go on from {self.latest}." if self.latest else "checkpoint.saveFreq is off: nothing is saved.")
        )

    def _tell(self, outcomes: Sequence[SaveOutcome]) -> None:
        for outcome in outcomes:
            if outcome.problem is not None:
                _log.warning("%s", outcome.problem)
                continue
            self.latest = self._run.checkpoints / f"step-{outcome.step}"
            self._reporter.checkpoint(outcome.step)
