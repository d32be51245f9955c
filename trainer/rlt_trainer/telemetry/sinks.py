"""Where each step's metrics go beyond the run directory and the progress server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rlt_api.training_config import TrainingConfig
from rlt_trainer.telemetry.tensorboard_sink import TensorBoardSink
from rlt_trainer.telemetry.wandb_sink import WandbSink

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes metrics. It opens with its first step, and so knows where a resumed run goes on. It may raise anything."""

    name: str

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take a step's metrics under verl's names."""

    def close(self) -> None:
        """No more steps will come. It may never have been opened."""


class Sinks:
    """All sinks. One that fails is left out from then on, with a warning: it never stops the training."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Give a step to all that still work."""
        for sink in list(self._sinks):
            try:
                sink.step(step, metrics)
            except Exception as error:
                self._sinks.remove(sink)
                _log.warning("%s has failed and gets nothing from step %s on: %s", sink.name, step, error)

    def close(self) -> None:
        """Close all that still work."""
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                _log.warning("%s could not be closed; its last steps may be missing: %s", sink.name, error)
        self._sinks = []


def sinks_of(config: TrainingConfig) -> Sinks:
    """Those that the job asks for."""
    run, watched = Path(config.run_directory), config.observability
    sinks: list[Sink] = []
    if watched.tensorboard:
        sinks.append(TensorBoardSink(Path(watched.tensorboard.directory or run / "tensorboard")))
    if watched.wandb:
        sinks.append(WandbSink(watched.wandb, config))
    return Sinks(sinks)
