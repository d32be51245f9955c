"""A spec without its invalid fields, so that the rules apply to the others in the same round."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

PARTS = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")


def remove_fields(spec: Mapping[str, Any], paths: Iterable[str]) -> Mapping[str, Any] | None:
    """A copy of the spec without the fields at these paths, such as spec.cluster.workers[0].replicas.

    None if one of them is missing, because it is required, or cannot be removed alone.
    """
    remaining = copy.deepcopy(dict(spec))
    for path in set(paths):
        found = list(PARTS.finditer(path))
        parts = [match[1] if match[1] is not None else int(match[2]) for match in found]
        if "".join(match[0] for match in found) != path.removeprefix("spec") or not parts:
            return None
        if not _remove(remaining, parts):
            return None
    return remaining


def _remove(value: Any, parts: list[str | int]) -> bool:
    """Remove a field of an object. Items of a list keep their numbers, so they are not removed."""
    *parents, name = parts
    for part in parents:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    if not isinstance(value, dict) or name not in value:
        return False
    del value[name]
    return True
