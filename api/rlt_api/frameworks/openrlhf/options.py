"""The options of OpenRLHF's train_ppo_ray, from options.toml, which tools/parse_openrlhf.py writes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rlt_api.findings.spelling import find_nearest_word
from rlt_api.frameworks.arguments import Program, build_option_key


@dataclass(frozen=True)
class Options:
    """The options of one version."""

    version: str
    names: tuple[str, ...]
    """Without dashes before them: actor.num_nodes."""
    integers: Mapping[str, int]
    """Name of an option that takes an integer -> its default."""


@cache
def load_options() -> Options:
    """Load the table."""
    table = tomllib.loads(resources.files(__package__).joinpath("options.toml").read_text())
    return Options(table["version"], tuple(table["names"]), table["integers"])


def describe_option(name: str) -> str | None:
    """Describe the problem of an option that OpenRLHF does not have; None if it has it.

    Its parser (argparse) also takes the beginning of a name that no other option has.
    """
    known = load_options()
    if name in known.names or sum(each.startswith(name) for each in known.names) == 1:
        return None
    meant = find_nearest_word(name, known.names, max_distance=max(2, len(name) // 8)) or next(
        (each for each in known.names if each.rpartition(".")[2] == name.rpartition(".")[2]), None
    )
    hint = f"did you mean --{meant}?" if meant else "remove it"
    return f"is not an option of OpenRLHF {known.version}; {hint}"


def has_known_options(program: Program) -> bool:
    """Whether the options are from OpenRLHF 0.11, whose names have dots. Earlier versions have other names."""
    return any("." in each.option for each in program.arguments)


def read_integer(program: Program, name: str) -> int | None:
    """Return the value of an option, or OpenRLHF's default. None if it is a variable, or not a positive integer."""
    key = build_option_key(name)
    value = program.values.get(key) if key in program.given else load_options().integers[name]
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
