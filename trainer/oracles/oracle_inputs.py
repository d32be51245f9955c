"""Random inputs of the oracles, and their output as JSON. Imports only torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROWS = 10
WIDTH = 6
GROUPS = [7, 3, 7, 3, 9, 7, 5, 5, 3, 7]
"""Unordered groups of sizes 4, 3, 2 and 1."""
GROUPS_OF_SEVERAL = [7, 3, 7, 3, 5, 7, 5, 5, 3, 7]
VOCABULARY = 9


def random_inputs() -> dict[str, Tensor]:
    """Return float64 tensors with six decimals. The mask has padding at the end, and observations in rows 2 and 6."""
    generator = torch.Generator().manual_seed(20260921)

    def normal(scale: float = 1.0) -> Tensor:
        return (torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64) * scale).round(decimals=6)

    lengths = torch.tensor([6, 4, 6, 1, 5, 3, 6, 2, 5, 6])
    mask = torch.arange(WIDTH) < lengths[:, None]
    mask[2, 2:4] = False
    mask[6, 1] = False
    log_probs = -normal().abs() - 0.1
    far = normal(0.3)
    far[0, 0] = 25.0
    far[1, 1] = -25.0
    far[4, 2] = 3.0
    far[5, 0] = 22.0
    far[7, 0] = -25.0
    return {
        "mask": mask,
        "groups": torch.tensor(GROUPS),
        "groups_of_several": torch.tensor(GROUPS_OF_SEVERAL),
        "token_rewards": normal() * mask,
        "values": normal(),
        "new_values": normal(),
        "returns": normal(),
        "baselines": normal()[:, 0],
        "log_probs": log_probs,
        "old_log_probs": log_probs + normal(0.3),
        "far_log_probs": log_probs + far,
        "ref_log_probs": log_probs + normal(0.5),
        "rollout_log_probs": log_probs + normal(0.4),
        "advantages": normal(),
        "weights": normal().abs(),
    }


def random_logits() -> tuple[Tensor, Tensor]:
    """Return float64 logits of a policy and a teacher [ROWS, WIDTH, VOCABULARY] with six decimals."""
    generator = torch.Generator().manual_seed(20261129)
    policy, teacher = torch.randn(2, ROWS, WIDTH, VOCABULARY, generator=generator, dtype=torch.float64) * 2
    return policy.round(decimals=6), teacher.round(decimals=6)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with tensors as lists and numbers with ten digits."""
    lines = [f"{json.dumps(name)}: {json.dumps(to_json(value))}" for name, value in content.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def to_json(value: Any) -> Any:
    if isinstance(value, Tensor):
        return to_json(value.tolist())
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value
