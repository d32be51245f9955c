"""The driver's part of a checkpoint: small values as JSON, and the tensors of the rollout queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from rlt_trainer.checkpoint.marker import DamagedCheckpointError

VALUES = "driver.json"
TENSORS = "driver.safetensors"


@dataclass(frozen=True)
class DriverState:
    """The driver's part of a checkpoint."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: prompts consumed, the data's fingerprint, the KL coefficient. Floats are restored exactly."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """The queue of rollouts for later steps, in asynchronous mode."""

    def write(self, directory: Path) -> None:
        """Write the values, and the tensors if there are any."""
        (directory / VALUES).write_text(json.dumps(dict(self.values)) + "\n", encoding="utf-8")
        if self.tensors:
            (directory / TENSORS).write_bytes(save({name: value.contiguous() for name, value in self.tensors.items()}))

    @classmethod
    def read(cls, directory: Path) -> DriverState:
        """Read the files that `write` created. Raises DamagedCheckpointError."""
        tensors = directory / TENSORS
        try:
            values = json.loads((directory / VALUES).read_text(encoding="utf-8"))
            return cls(values, load_file(tensors) if tensors.exists() else {})
        except (OSError, ValueError, SafetensorError) as error:
            raise DamagedCheckpointError(f"the driver's state cannot be read ({error})") from error
