"""The sink that writes TensorBoard event files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardSink:
    """Writes event files to `directory`. When a run resumes, TensorBoard drops the earlier events of repeated steps."""

    name = "TensorBoard"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer: SummaryWriter | None = None

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar for each metric."""
        from torch.utils.tensorboard import SummaryWriter  # slow import

        if self._writer is None:
            self._writer = SummaryWriter(str(self._directory), purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
