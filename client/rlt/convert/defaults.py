"""A spec without the values that it has by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt_api.validation.resolved_spec import build_resolved_spec

Json = dict[str, Any]
REQUIRED: Json = {"model": {}, "data": {}}
"""Blocks without a default as a whole, whose fields have defaults."""


def subtract_defaults(spec: Json) -> Json:
    """The fields of a valid spec that a job with its workers alone does not have. The result means the same."""
    least = build_resolved_spec({**REQUIRED, "cluster": {"workers": spec["cluster"]["workers"]}}, None)
    without = _subtract(spec, least)
    without.setdefault("cluster", {})["workers"] = [_drop_empty(group) for group in spec["cluster"]["workers"]]
    # Some defaults depend on other fields, such as ppoMiniBatchSize's.
    _restore(without, spec, build_resolved_spec(without, None), build_resolved_spec(spec, None))
    return without


def _subtract(value: Json, defaults: Mapping[str, Any]) -> Json:
    found: Json = {}
    for key, each in value.items():
        default = defaults.get(key)
        if isinstance(each, dict) and isinstance(default, Mapping):
            if inner := _subtract(each, default):
                found[key] = inner
        elif each != default and each not in ({}, []):
            found[key] = each
    return found


def _restore(without: Json, spec: Json, resolved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Set the fields again without which the resolved spec is another."""
    for key, each in spec.items():
        if resolved.get(key) == wanted.get(key):
            continue
        if isinstance(each, dict) and isinstance(without.get(key), dict):
            _restore(without[key], each, resolved[key], wanted[key])
        else:
            without[key] = each


def _drop_empty(group: Json) -> Json:
    """A worker group without empty fields and the default name."""
    return {key: each for key, each in group.items() if each not in ({}, []) and (key, each) != ("name", "workers")}
