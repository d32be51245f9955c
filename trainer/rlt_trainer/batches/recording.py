"""A step's rollouts on disk, with all that the update learned from: what `rlt-trainer replay` repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Experience, Sequences

SEQUENCES = "sequences."
EXPERIENCE = "experience."


@dataclass(frozen=True)
class Recording:
    """One step as the driver saw it."""

    step: int
    experience: Experience
    """What the ranks were given, advantages, values and returns included."""
    rollouts: Mapping[str, Tensor]
    """What came before: "rewards" [B], "rollout_log_probs" [B, T], and each reward by name."""
    metrics: Mapping[str, float]
    """What the step came to."""
    config: TrainingConfig

    def save(self, recordings: Path) -> None:
        """Write step-N.safetensors and, as the sign that it is whole, step-N.json. Raises OSError, SafetensorError."""
        recordings.mkdir(parents=True, exist_ok=True)
        named = {**dict(_flat(self.experience)), **self.rollouts}
        tensors = {name: value.clone(memory_format=torch.contiguous_format) for name, value in named.items()}
        save_file(tensors, recordings / f"step-{self.step}.safetensors")  # it refuses tensors that share memory
        said = {"step": self.step, "metrics": dict(self.metrics), "config": self.config.to_json()}
        (recordings / f"step-{self.step}.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, recordings: Path, step: int) -> Self:
        """Read what `save` has written. Raises ValueError, with the steps that there are."""
        try:
            said = json.loads((recordings / f"step-{step}.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            there = ", ".join(map(str, recorded_steps(recordings))) or "none"
            raise ValueError(
                f"{recordings}: step {step} is not recorded; recorded steps: {there}. Name the steps in "
                "observability.recordSteps before the run."
            ) from error
        tensors = load_file(recordings / f"step-{step}.safetensors")
        sequences = Sequences(**_below(SEQUENCES, tensors))
        return cls(
            step=step,
            experience=Experience(sequences=sequences, **_below(EXPERIENCE, tensors)),
            rollouts={name: value for name, value in tensors.items() if not name.startswith((SEQUENCES, EXPERIENCE))},
            metrics=said["metrics"],
            config=TrainingConfig.model_validate(said["config"]),
        )


def recorded_steps(recordings: Path) -> list[int]:
    """The steps that `recordings` holds whole."""
    return sorted(int(file.stem.removeprefix("step-")) for file in recordings.glob("step-*.json"))


def _flat(experience: Experience) -> Iterator[tuple[str, Tensor]]:
    for prefix, part in ((SEQUENCES, experience.sequences), (EXPERIENCE, experience)):
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, Tensor):
                yield prefix + field.name, value


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
