"""The keys of verl's config for each engine, from keys.toml, which tools/verl_keys.py writes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources

from rlt_api.findings.spelling import find_nearest_word
from rlt_api.frameworks.arguments import Argument, Program
from rlt_api.frameworks.command.problem import Problem
from rlt_api.frameworks.mapping import find, load_mapping
from rlt_api.frameworks.verl.parallel import SIZES, read_engine

SINCE = "=0.9"
"""Hydra ends with an error for a key that the config of this version does not contain."""


@cache
def load_keys(engine: str) -> frozenset[str]:
    """Load the keys of an engine."""
    table = _load()
    return frozenset(table["common"]) | frozenset(table[engine])


def list_key_problems(program: Program) -> Iterator[Problem]:
    """List the arguments whose key verl's config does not contain."""
    engine = read_engine(program.values)
    for argument in program.arguments:
        if not program.own_config and (message := describe_key(argument, engine)):
            yield Problem(argument.key, message, since=SINCE)


def describe_key(argument: Argument, engine: str = "dp") -> str | None:
    """Describe the problem of a key that verl's config for this engine does not contain; None if it does.

    Hydra ends with an error for such a key. A + adds it, and verl ignores it.
    """
    mapped = load_mapping()
    key = argument.key
    keys = load_keys(engine)
    if key.startswith("hydra.") or "@" in key or "/" in key:
        return None
    if argument.prefix:
        is_twice = argument.prefix == "+" and key in keys
        return "Hydra cannot add a key that verl's config contains; remove the +" if is_twice else None
    if key in keys or any(each.startswith(f"{key}.") for each in keys):
        return None
    version = mapped.verl_version
    setting = find(key, [each for each in mapped.verl if not each.in_config])
    if setting is not None and setting.renamed:
        return f"verl {version} has {setting.renamed} instead"
    if setting is not None and setting.added:
        return f"is not in the config of verl {version}, which reads it; put a + before it"
    if setting is not None and setting.removed:
        reason = setting.reason.removeprefix("Removed from verl.").strip().rstrip(".")
        return f"verl {version} does not have it: {reason}; remove it"
    other = next((each for each in SIZES if key in load_keys(each)), None)
    if other:
        return f"is a key of model_engine={other}, and the engine is {engine}; add model_engine={other}, or remove it"
    last = key.rpartition(".")[2]
    meant = find_nearest_word(key, sorted(keys), max_distance=max(2, len(key) // 8)) or next(
        (each for each in sorted(keys, key=_order) if each.rpartition(".")[2] == last), None
    )
    hint = f"did you mean {meant}?" if meant else "remove it, or put a + before it if a plugin reads it"
    return f"is not a key of verl {version}; {hint}"


def _order(key: str) -> tuple[bool, str]:
    """The policy's keys first."""
    return not key.startswith("actor_rollout_ref.actor."), key


@cache
def _load() -> dict[str, list[str]]:
    return tomllib.loads(resources.files(__package__).joinpath("keys.toml").read_text())
