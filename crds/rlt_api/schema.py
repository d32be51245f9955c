"""Walks over the JSON schema of the API's types: which fields there are, and what is not supported yet."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from rlt_api.finding import Finding
from rlt_api.model import NOT_YET_KEY, ApiModel

Schema = dict[str, Any]


@functools.cache
def schema_of(model: type[ApiModel]) -> Schema:
    """The type's schema with all references resolved, as tools/generate.py has written it: to make it takes long."""
    text = resources.files("rlt_api").joinpath("generated", f"{model.__name__}.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


def make_schema(model: type[ApiModel]) -> Schema:
    """The type's schema with all references resolved."""
    schema = model.model_json_schema(by_alias=True)
    resolved = _resolve(schema, schema.get("$defs", {}))
    assert isinstance(resolved, dict)
    return resolved


def fields_of(model: type[ApiModel], location: Sequence[str | int]) -> list[str]:
    """Names of the fields at a place, such as ("cluster", "workers", 0)."""
    node = schema_of(model)
    for part in location:
        node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    return list(node.get("properties", {}))


def unsupported(value: object, model: type[ApiModel], path: str) -> list[Finding]:
    """What is given and not supported yet."""
    return list(_unsupported(value, schema_of(model), path))


def not_yet(model: type[ApiModel], path: str = "spec") -> dict[str, list[str]]:
    """Path of each field that is not supported yet -> its unsupported values; an empty list: all but the default."""
    return dict(_not_yet(schema_of(model), path))


def leaves(model: type[ApiModel], path: str = "spec") -> Iterator[tuple[str, Schema]]:
    """Every field that holds no further fields, with its schema. What lies in a list has [] in its path."""
    yield from _leaves(schema_of(model), path)


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


def _unsupported(value: object, node: Schema, path: str) -> Iterator[Finding]:
    mark, default = node.get(NOT_YET_KEY), node.get("default")
    if (mark is True and value != default) or (isinstance(mark, list) and value in mark):
        fix = "leave it out" + (f", or give {json.dumps(default)}" if default not in (None, [], {}) else "")
        yield Finding(path, json.dumps(value)[:100], "not supported yet", fix, "not-supported-yet")
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _unsupported(child, node.get("properties", {}).get(key, {}), f"{path}.{key}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _unsupported(child, node.get("items", {}), f"{path}[{index}]")


def _not_yet(node: Schema, path: str) -> Iterator[tuple[str, list[str]]]:
    mark = node.get(NOT_YET_KEY)
    if mark is not None:
        yield path, [] if mark is True else mark
    if mark is True:
        return
    for name, child in node.get("properties", {}).items():
        yield from _not_yet(child, f"{path}.{name}")
    if "items" in node:
        yield from _not_yet(node["items"], f"{path}[]")


def _leaves(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    if node.get("properties"):
        for name, child in node["properties"].items():
            yield from _leaves(child, f"{path}.{name}")
    elif "properties" in node.get("items", {}):
        yield from _leaves(node["items"], f"{path}[]")
    else:
        yield path, node
