"""One source for `rlt convert`, with what the job must have and what must be left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlt.convert.convert import Target

VERL = "python3 -m verl.trainer.main_ppo"
WORKERS = "cluster.workers[]"
SETTINGS = (
    "data.train_files=/d/train.parquet data.val_files=/d/test.parquet data.train_batch_size=256 "
    "actor_rollout_ref.model.path=/m/qwen actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"
)


@dataclass(frozen=True)
class Conversion:
    name: str
    source: str
    fields: dict[str, Any] = field(default_factory=dict)
    """Path of a field -> its value."""
    left_out: tuple[str, ...] = ()
    """Beginnings of notes."""
    to: Target = "command"
    last: tuple[str, ...] = ()
    """The end of the command."""
