"""A recorded step on disk: its rollouts and the input of its updates, for `rlt-trainer replay`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Experience, Sequences

SEQUENCES = "sequences."
EXPERIENCE = "experience."


@dataclass(frozen=True)
class Recording:
    """The data of one step in the driver."""

    step: int
    experience: Experience
    """The input of the updates, with advantages, values and returns."""
    rollouts: Mapping[str, Tensor]
    """The input of the experience: "rewards" [B], "rollout_log_probs" [B, T], and "rewards.NAME" [B] of each reward."""
    metrics: Mapping[str, float]
    """The metrics of the step."""
    config: TrainingConfig

    def save(self, recordings: Path) -> None:
        """Write step-N.safetensors, then step-N.json, which marks it as complete. Raises OSError, SafetensorError."""
        recordings.mkdir(parents=True, exist_ok=True)
        named = {**dict(_named_tensors(self.experience)), **self.rollouts}
        tensors = {name: value.clone(memory_format=torch.contiguous_format) for name, value in named.items()}
        save_file(tensors, recordings / f"step-{self.step}.safetensors")  # rejects tensors that share memory
        content = {"step": self.step, "metrics": dict(self.metrics), "config": self.config.to_json()}
        (recordings / f"step-{self.step}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, recordings: Path, step: int) -> Self:
        """Read a recorded step. Raises ValueError with the recorded steps if it is missing."""
        try:
            content = json.loads((recordings / f"step-{step}.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            recorded = ", ".join(map(str, recorded_steps(recordings))) or "none"
            raise ValueError(
                f"{recordings}: step {step} is not recorded; recorded steps: {recorded}. List the step in "
                "observability.recordSteps before the run."
            ) from error
        tensors = load_file(recordings / f"step-{step}.safetensors")
        sequences = Sequences(**_select(SEQUENCES, tensors))
        return cls(
            step=step,
            experience=Experience(sequences=sequences, **_select(EXPERIENCE, tensors)),
            rollouts={name: value for name, value in tensors.items() if not name.startswith((SEQUENCES, EXPERIENCE))},
            metrics=content["metrics"],
            config=TrainingConfig.model_validate(content["config"]),
        )


def recorded_steps(recordings: Path) -> list[int]:
    """Return the steps whose recording is complete."""
    return sorted(int(file.stem.removeprefix("step-")) for file in recordings.glob("step-*.json"))


def _named_tensors(experience: Experience) -> Iterator[tuple[str, Tensor]]:
    for prefix, part in ((SEQUENCES, experience.sequences), (EXPERIENCE, experience)):
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, Tensor):
                yield prefix + field.name, value


def _select(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
