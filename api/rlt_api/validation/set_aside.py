"""Invalid fields, set aside so that the rules apply to the others in the same round.

A rule that reads a field without a valid value ends there. What it has found before, and what other rules find, holds
for each value that the field can get.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from rlt_api.findings.finding import Finding
from rlt_api.model import ApiModel, UnreadableFieldError
from rlt_api.spec.accelerator_defaults import DEPENDS_ON
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import EXCLUSIVE_FIELDS

Block = TypeVar("Block", bound=ApiModel)
Parameters = ParamSpec("Parameters")
Location = tuple[str | int, ...]
"""A place below spec: ("cluster", "workers", 0, "replicas")."""

PART = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")
DECIDING = re.compile(
    r"runtimeRef.*|framework(\.type)?|algorithm(\.dpo)?|"
    r"cluster(\.workers(\.\d+(\.(pool|accelerator(\.resourceName)?))?)?)?"
)
"""The fields that decide how a job and its runtime are merged: without a value, no rule applies."""


@dataclass(frozen=True)
class Readable:
    """What is left of an invalid spec."""

    spec: Mapping[str, Any]
    """The spec without the invalid fields. Its structure is valid."""
    hidden: frozenset[Location]
    """The fields whose values are unknown."""


def set_aside(
    spec: Mapping[str, Any],
    invalid: Iterable[Finding],
    validate: Callable[[Mapping[str, Any]], Iterable[Finding]],
) -> Readable | None:
    """Remove the fields of findings about types, bounds and names. None if no rule can apply to the rest.

    `validate` finds what is invalid in the structure of the rest: an object that lacks a required field is removed as a
    whole. What a misspelled field stands for is unknown, too.
    """
    remaining = copy.deepcopy(dict(spec))
    hidden: set[Location] = set()
    found = list(invalid)
    while found:
        removed: set[Location] = set()
        for finding in found:
            location = _locate(finding.field)
            if any(location[:length] in removed for length in range(len(location))):
                continue
            removed.add(_remove(remaining, location))
            hidden.update(map(_locate, finding.involved))
        if () in removed:
            return None
        hidden |= removed
        found = list(validate(remaining))
    for location in list(hidden):
        hidden.update(_list_dependents(location))
    if any(DECIDING.fullmatch(".".join(map(str, each))) for each in hidden):
        return None
    return Readable(remaining, frozenset(hidden))


def hide(spec: RLTrainingJobSpec, locations: Iterable[Location]) -> RLTrainingJobSpec:
    """Return a copy of the spec in which reading one of these fields raises UnreadableFieldError."""
    for location in locations:
        spec = _hide(spec, location)
    return spec


def until_unreadable(
    rule: Callable[Parameters, Iterable[Finding]], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Iterator[Finding]:
    """Yield what a rule finds before it reads a hidden field."""
    with suppress(UnreadableFieldError):
        yield from rule(*arguments, **named)


def _locate(path: str) -> Location:
    """Parse a path, up to the first key that is not a name."""
    parts: list[str | int] = []
    end = len("spec")
    while match := PART.match(path, end):
        parts.append(match[1] if match[1] is not None else int(match[2]))
        end = match.end()
    return tuple(parts)


def _remove(spec: dict[str, Any], location: Location) -> Location:
    """Remove the field at a location, or the field around it if it is missing or an item of a list, whose other items
    keep their numbers. Returns its location: empty if nothing can be removed."""
    while location:
        *parents, name = location
        block: Any = spec
        with suppress(KeyError, IndexError, TypeError):
            for part in parents:
                block = block[part]
            if isinstance(block, dict):
                del block[name]
                return location
        location = location[:-1]
    return ()


def _list_dependents(location: Location) -> Iterable[Location]:
    """The other fields of an exclusive choice, and the defaults that depend on a field."""
    *block, name = location
    yield from ((*block, other) for choice in EXCLUSIVE_FIELDS if name in choice for other in choice)
    path = ".".join(map(str, location))
    yield from (_locate(f"spec.{field}") for field, reads in DEPENDS_ON.items() if re.fullmatch(reads, path))


def _hide(block: Block, location: Location) -> Block:
    """Copy the blocks on the way to the field: specs share default values. Without such a block, hide its place."""
    part, *rest = location
    copied = block.model_copy()
    for name, field in type(block).model_fields.items():
        if field.alias == part:
            value = copied.__dict__.pop(name, None)
            if rest and isinstance(value, ApiModel):
                copied.__dict__[name] = _hide(value, tuple(rest))
            elif rest[1:] and isinstance(value, list) and all(isinstance(each, ApiModel) for each in value):
                items = enumerate(value)
                copied.__dict__[name] = [_hide(each, tuple(rest[1:])) if i == rest[0] else each for i, each in items]
            else:
                copied.__pydantic_fields_set__.add(name)
    return copied
