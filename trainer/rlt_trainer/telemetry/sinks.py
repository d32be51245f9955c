"""Sinks: destinations of each step's metrics other than the run directory and the progress server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.telemetry.tensorboard_sink import TensorBoardSink
from rlt_trainer.telemetry.wandb_sink import WandbSink

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """A destination of metrics. It opens at the first step, which is where a resumed run continues. It may raise any
    exception."""

    name: str

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record a step's metrics under verl's names."""

    def close(self) -> None:
        """Close the sink, which may not have been opened."""


class Sinks:
    """All sinks of a run. A sink that fails is removed with a warning and never stops the training."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record a step in all sinks that have not failed."""
        for sink in list(self._sinks):
            try:
                sink.step(step, metrics)
            except Exception as error:
                self._sinks.remove(sink)
                _log.warning("%s failed and receives no metrics from step %s on: %s", sink.name, step, error)

    def close(self) -> None:
        """Close all sinks that have not failed."""
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                _log.warning("%s could not be closed, its last steps may be missing: %s", sink.name, error)
        self._sinks = []


def build_sinks(config: TrainingConfig) -> Sinks:
    """Build the sinks that the job enables."""
    run = Path(config.run_directory)
    observability = config.observability
    sinks: list[Sink] = []
    if observability.tensorboard:
        sinks.append(TensorBoardSink(Path(observability.tensorboard.directory or run / "tensorboard")))
    if observability.wandb:
        sinks.append(WandbSink(observability.wandb, config))
    return Sinks(sinks)
