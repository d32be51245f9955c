"""The values of ROLL's config: framework.overrides, and objects that replace others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from rlt_api.frameworks.arguments import Argument, parse_overrides, parse_value

Settings = dict[str, JsonValue]


def read_overrides(overrides: Sequence[str]) -> Settings:
    """Read the overrides KEY=VALUE as an object."""
    found: Settings = {}
    for argument in parse_overrides(overrides):
        value: JsonValue = read_value(argument)
        for part in reversed(argument.key.split(".")):
            value = {part: value}
        found = merge(found, value if isinstance(value, dict) else {})
    return found


def read_value(argument: Argument) -> JsonValue:
    """Read the value of an override: a number, a word, or a list or object in JSON."""
    if argument.value.startswith(("[", "{")):
        try:
            value: JsonValue = json.loads(argument.value)
        except ValueError:
            return argument.value
        return value
    return parse_value(argument.value)


def merge(base: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]) -> Settings:
    """Merge two objects. Lists and single values of `changes` replace `base`'s."""
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        merged[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def escape(text: str | None) -> str | None:
    """Escape what OmegaConf reads as an interpolation."""
    return text.replace("${", "\\${") if text else text


def get_block(settings: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    """Return an object in the settings; an empty one if there is none."""
    value = settings.get(key)
    return value if isinstance(value, dict) else {}
