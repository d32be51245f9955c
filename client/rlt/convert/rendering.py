"""The settings that a framework gets from a draft. What is invalid in it is left out, so that no draft is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_structure

Json = dict[str, Any]
Held = list[tuple[tuple[str | int, ...], Any]]
"""Path and value of each field that was taken out."""


def list_invalid(spec: Json) -> list[str]:
    """The fields with a wrong type or value, the blocks that miss a field, and unknown fields."""
    return [each.field for each in validate_structure(spec, RLTrainingJobSpec, "spec")]


def hold_invalid(spec: Json) -> Held:
    """Take the invalid fields out of a spec."""
    held: Held = []
    while invalid := list_invalid(spec):
        before = len(held)
        for field in invalid:
            held += take(spec, field)
        if len(held) == before:
            return held
    return held


def restore(spec: Json, held: Held) -> None:
    """Put the fields back, also into a copy of the spec that has the same lists."""
    for (*parents, last), value in reversed(held):
        node: Any = spec
        for part in parents:
            node = node[part] if isinstance(part, int) else node.setdefault(part, {})
        node[last] = value


def drop(spec: Json, fields: Iterable[str]) -> bool:
    """Take fields out of a spec. Whether all of them were in it."""
    taken = [take(spec, field) for field in fields]
    return all(taken)


def take(spec: Json, field: str) -> Held:
    """Take out a field; of a missing one the innermost block that should have it."""
    node: Any = spec
    path: list[str | int] = []
    found: list[tuple[Json, tuple[str | int, ...]]] = []
    for part in re.findall(r"[^.\[\]]+", field.removeprefix("spec.")):
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            path.append(int(part))
        elif isinstance(node, dict) and part in node:
            path.append(part)
            found.append((node, tuple(path)))
        else:
            break
        node = node[path[-1]]
    if not found:
        return []
    owner, where = found[-1]
    return [(where, owner.pop(str(where[-1])))]
