"""The responses that verl writes to the folder trainer.rollout_data_dir, as the rollouts of rlt's trainer.

verl 0.9.1 writes N.jsonl for step N: RayPPOTrainer._write_generations in verl/trainer/ppo/ray_trainer.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 64 * 2**20
"""Maximum size of a file that is read: its responses are in memory at once."""
NAMES = {"input": "prompt", "output": "response", "gts": "ground_truth"}
"""verl's name -> the name in rlt's trainer."""


def find_latest_step(folder: Path) -> int | None:
    """The latest step with responses. None if there is none."""
    return max((int(file.stem) for file in folder.glob("*.jsonl") if file.stem.isdigit()), default=None)


def read_rollouts(folder: Path, step: int) -> bytes | None:
    """The responses of a step as JSON lines. None if the step has none.

    Raises OSError, and ValueError if there are too many. `index` numbers the prompts; `rewards` has the other numbers
    that the reward function returned, by name.
    """
    file = folder / f"{step}.jsonl"
    if not file.exists():
        return None
    size = file.stat().st_size
    if size > MAX_BYTES:
        limit = f"more than the {MAX_BYTES >> 20} MiB that are served"
        raise ValueError(f"{file} has {size >> 20} MiB, {limit}: read the file")
    return b"".join(json.dumps(rollout).encode() + b"\n" for rollout in _iterate_rollouts(file))


def _iterate_rollouts(file: Path) -> Iterator[dict[str, Any]]:
    prompts: dict[str, int] = {}
    with file.open("rb") as lines:
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:  # verl is writing the last line
                continue
            if not isinstance(found, dict):
                continue
            rewards = {name: _read_number(value) for name, value in found.items() if _is_number(value)}
            reward = rewards.pop("score", None)
            rewards.pop("step", None)
            texts = {NAMES[name]: value for name, value in found.items() if name in NAMES}
            index = prompts.setdefault(str(found.get("input")), len(prompts))
            yield {"index": index, **texts, "reward": reward, "rewards": rewards}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _read_number(value: float) -> float | None:
    """None for NaN and infinities, which JSON does not support."""
    return value if math.isfinite(value) else None
