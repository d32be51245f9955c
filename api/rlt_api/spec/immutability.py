"""The immutable blocks of a job's spec: as CEL rules for the CRD, and as a comparison for the webhook.

In lists of objects, an explicit default equals omission. The first version of the CRD wrote its defaults into stored
jobs, and `kubectl apply` of the same file keeps the defaults of objects but replaces lists by the file's lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from rlt_api.blocks.cluster import Cluster, WorkerGroup
from rlt_api.blocks.rewards import Reward
from rlt_api.model import ApiModel

IMMUTABLE_BLOCKS = (
    "runtimeRef",
    "framework",
    "managedBy",
    "model",
    "data",
    "rewards",
    "algorithm",
    "training",
    "rollout",
    "cluster",
    "network",
    "scheduling",
    "storage",
    "checkpoint",
    "preflight",
    "failurePolicy",
    "observability",
    "security",
)
"""Blocks that have an effect only when the job starts. Every reconciliation reads the others."""

CEL_NAMES = {"function": "__function__"}
"""Fields whose names are reserved words of CEL: https://kubernetes.io/docs/reference/using-api/cel/#escaping"""


def immutability_rules() -> Iterator[tuple[str, str]]:
    """Yield the CEL expression and the message for each block (`model.cel`)."""
    for block in IMMUTABLE_BLOCKS:
        message = f"{block} is immutable: create a job with another name, or delete this one first"
        yield _block_rule(block), message


def changed_blocks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the immutable blocks in which two specs differ."""
    return [
        block
        for block in IMMUTABLE_BLOCKS
        if _without_defaults(old.get(block), block) != _without_defaults(new.get(block), block)
    ]


def _block_rule(block: str) -> str:
    if block == "rewards":
        return _unchanged(block, _equal_items(block, Reward))
    if block == "cluster":
        others = [f"({_unchanged(f'{block}.{to_camel(name)}')})" for name in Cluster.model_fields if name != "workers"]
        workers = _unchanged("cluster.workers", _equal_items("cluster.workers", WorkerGroup))
        return _unchanged(block, " && ".join([*others, f"({workers})"]))
    return _unchanged(block)


def _unchanged(path: str, same: str | None = None) -> str:
    same = same or f"self.{path} == oldSelf.{path}"
    return f"has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || {same})"


def _equal_items(items: str, model: type[ApiModel]) -> str:
    parts = [f"self.{items}.size() == oldSelf.{items}.size()"]
    for key, default, is_open in _fields(model):
        given = f"x.{CEL_NAMES.get(key, key)}"
        if default is None or is_open:  # CEL has no size() for objects of any shape
            value = f"has({given}) ? [{given}] : []"
        elif isinstance(default, dict | list):
            value = f"has({given}) && {given}.size() > 0 ? [{given}] : []"
        else:
            value = f"has({given}) ? {given} : {json.dumps(default)}"
        parts.append(f"self.{items}.map(x, {value}) == oldSelf.{items}.map(x, {value})")
    return " && ".join(parts)


def _without_defaults(value: Any, block: str) -> Any:
    if block == "cluster" and value and "workers" in value:
        return {**value, "workers": [_without_default_fields(each, WorkerGroup) for each in value["workers"]]}
    return [_without_default_fields(each, Reward) for each in value] if block == "rewards" and value else value


def _without_default_fields(item: Mapping[str, Any], model: type[ApiModel]) -> dict[str, Any]:
    defaults = {key: default for key, default, is_open in _fields(model) if default is not None and not is_open}
    return {key: value for key, value in item.items() if key not in defaults or value != defaults[key]}


def _fields(model: type[ApiModel]) -> Iterator[tuple[str, Any, bool]]:
    """Yield each field's key, its default, and whether it is an object of any shape."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        yield to_camel(name), default, JsonValue in get_args(field.annotation)
