"""Cloud machines by instance type, from machines.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Machine:
    """One instance type, as its cloud documents it."""

    type: str
    """Glob of instance types."""
    cloud: str
    product: str
    gpus: int
    """GPUs per machine."""
    fabric: str
    source: str
    vendor: str = "nvidia"
    resources: tuple[tuple[str, int], ...] = ()
    """Extended resources of the fabric per machine, once its device plugin runs."""
    needs: str = ""
    """Prefix of the resource that pods need to use the fabric, if the admin chooses its name."""


@cache
def find_machine(instance_type: str) -> Machine | None:
    """Find the machine of an instance type. None if it is not listed."""
    return next((each for each in load_machines() if fnmatchcase(instance_type, each.type)), None)


@cache
def load_machines() -> tuple[Machine, ...]:
    table = tomllib.loads((resources.files(__package__) / "machines.toml").read_text())
    return tuple(
        Machine(**entry | {"resources": _parse_amounts(entry.get("resources", {}))}) for entry in table["machine"]
    )


def _parse_amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
