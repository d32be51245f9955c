"""How verl divides its devices: the engine that trains, and its data-parallel shares.

verl/utils/config.py and verl/workers/engine of verl 0.9.1: Megatron's experts (EP, ETP) do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pydantic import JsonValue

ACTOR = "actor_rollout_ref.actor"
ULYSSES = (f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size")
"""The first replaces the second if it is above 1 (FSDPActorConfig)."""
SIZES: Mapping[str, tuple[str, ...]] = {
    "dp": ULYSSES,
    "megatron": tuple(
        f"{ACTOR}.megatron.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context")
    ),
    "torchtitan": tuple(f"{ACTOR}.torchtitan.{name}_parallel_size" for name in ("tensor", "pipeline", "context")),
    "veomni": (f"{ACTOR}.veomni.ulysses_parallel_size",),
}
"""model_engine -> the keys of the sizes whose product is the devices of one share. Their defaults are 1."""


def read_engine(values: Mapping[str, JsonValue]) -> str:
    """Return the engine that trains: model_engine, or actor.strategy in earlier versions."""
    for key in ("model_engine", f"{ACTOR}.strategy"):
        if isinstance(name := values.get(key), str) and name in SIZES:
            return name
    return "dp"


def read_sizes(values: Mapping[str, JsonValue]) -> dict[str, int]:
    """Return the sizes that divide the devices: key -> size. Those that are not positive integers count as 1."""
    sizes = {}
    for key in SIZES[read_engine(values)]:
        value = values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            sizes[key] = value
            if key in ULYSSES:
                break
    return sizes


def count_shares(values: Mapping[str, JsonValue], devices: int) -> int | None:
    """Count the data-parallel shares of a batch. None if the sizes do not divide the devices."""
    size = prod(read_sizes(values).values())
    return devices // size if devices and devices % size == 0 else None
