"""Engines that load a model from its files, without train workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.engine_processes import EngineProcesses
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.termination import Termination

if TYPE_CHECKING:
    from rlt_trainer.driver.engines import _Engine


class LoadedEngines(Engines):
    """Engines without weight syncs. An engine whose process ends is started again, and loads the same files."""

    def __init__(self, config: TrainingConfig, processes: EngineProcesses, termination: Termination) -> None:
        super().__init__(config, None, processes, termination)

    def load(self, version: int) -> None:
        """Start the engines, and send them requests. `version` of the weights: the step of the model."""
        self._start_processes()
        self.sync_weights(version)

    def _begin_verification(self, new: Sequence[_Engine]) -> None:
        """Nothing is synced."""

    def _open_channels(self, engines: Sequence[_Engine]) -> None:
        """Nothing is synced."""

    def _release_memory(self, before: str) -> None:
        """Nothing else uses the devices."""

    def _sync(self, *, is_verified: bool) -> None:
        self.loop.submit(self._serve()).result()
