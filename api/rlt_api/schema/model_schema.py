"""The JSON schemas of the API's types, and walks over their fields."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from rlt_api.model import ApiModel

Schema = dict[str, Any]


@functools.cache
def load_schema(model: type[ApiModel]) -> Schema:
    """Load the type's schema with all references resolved. tools/generate.py writes the file: building it is slow."""
    text = resources.files("rlt_api").joinpath("generated", f"{model.__name__}.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


def build_schema(model: type[ApiModel]) -> Schema:
    """Build the type's schema with all references resolved."""
    schema = model.model_json_schema(by_alias=True)
    resolved = _resolve(schema, schema.get("$defs", {}))
    assert isinstance(resolved, dict)
    return resolved


def list_fields(model: type[ApiModel], location: Sequence[str | int]) -> list[str]:
    """Return the names of the fields at a location, such as ("cluster", "workers", 0)."""
    node = load_schema(model)
    for part in location:
        node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    return list(node.get("properties", {}))


def walk_leaves(model: type[ApiModel], path: str = "spec") -> Iterator[tuple[str, Schema]]:
    """Yield path and schema of every field without subfields. The path of a list item contains []."""
    yield from _leaves(load_schema(model), path)


def _resolve(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_resolve(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        if name == "JsonValue":
            return {}
        return _resolve({**definitions[name], **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    if "anyOf" in node:
        (choice,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        return _resolve({**choice, **{k: v for k, v in node.items() if k != "anyOf"}}, definitions)
    return {key: _resolve(value, definitions) for key, value in node.items() if key != "$defs"}


def _leaves(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    if node.get("properties"):
        for name, child in node["properties"].items():
            yield from _leaves(child, f"{path}.{name}")
    elif "properties" in node.get("items", {}):
        yield from _leaves(node["items"], f"{path}[]")
    else:
        yield path, node
