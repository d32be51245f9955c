"""What the driver has to remember: small values as JSON, and the replay queue's tensors."""

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
    """Whatever JSON can say: prompts consumed, the data's fingerprint, the KL coefficient. Floats come back exactly."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """The queue of rollouts that wait for their step, in asynchronous mode."""

    def write(self, directory: Path) -> None:
        """Write both files, the second only if there are tensors."""
        (directory / VALUES).write_text(json.dumps(dict(self.values)) + "\n", encoding="utf-8")
        if self.tensors:
            (directory / TENSORS).write_bytes(save({name: value.contiguous() for name, value in self.tensors.items()}))

    @classmethod
    def read(cls, directory: Path) -> DriverState:
        """Read what `write` has written. Raises DamagedCheckpointError."""
        tensors = directory / TENSORS
        try:
            values = json.loads((directory / VALUES).read_text(encoding="utf-8"))
            return cls(values, load_file(tensors) if tensors.exists() else {})
        except (OSError, ValueError, SafetensorError) as error:
            raise DamagedCheckpointError(f"the driver's state cannot be read ({error})") from error
