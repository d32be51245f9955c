"""Which fields of a resolved configuration differ from their defaults, and the defaults. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.schema.model_schema import Schema, load_schema
from rlt_api.spec.job_spec import RLTrainingJobSpec


def find_changed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The path of each field that differs, such as training.learningRate or rewards[0].name, and its default.

    A field without a default differs if it has a value. Fields that a spec does not have, such as the job's name in the
    config of a run directory, are left out.
    """
    return dict(_walk(config, load_schema(RLTrainingJobSpec), ""))


def _walk(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves are the same as in static/run.js: scalars, and lists of scalars."""
    if isinstance(value, Mapping):
        block = _find_variant(schema, "properties", "additionalProperties")
        for name, each in value.items():
            child = block.get("properties", {}).get(name, block.get("additionalProperties"))
            if isinstance(child, dict):
                yield from _walk(each, child, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        items = _find_variant(schema, "items").get("items", {})
        for number, each in enumerate(value):
            yield from _walk(each, items, f"{path}[{number}]")
    elif value != schema.get("default") and value not in (None, []):
        yield path, schema.get("default")


def _find_variant(schema: Schema, *keys: str) -> Schema:
    """The variant of an optional or alternative schema that has one of the keys."""
    variants = [schema, *schema.get("anyOf", []), *schema.get("oneOf", [])]
    return next((each for each in variants if any(key in each for key in keys)), {})
