"""The fields that a source cannot give, all at once: validation stops at the first kind that is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from rlt.manifest_files import parse_documents
from rlt.validation import validate_documents
from rlt_api.findings.finding import Finding

Json = dict[str, Any]
POD: Json = {
    "resources": {"cpu": "64", "memory": "2048Gi"},
    "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
}
VALUES: Mapping[str, Any] = {
    "image": "registry.example/image:1", "resources": POD["resources"], "cpu": "64", "memory": "2048Gi", "count": 8,
    "resourceName": "nvidia.com/gpu", "accelerator": POD["accelerator"], "path": "/mnt/rlt/model",
    "files": ["/mnt/rlt/data.parquet"], "model": {"path": "/mnt/rlt/model"}, "data": {"files": ["/mnt/rlt/data.parquet"]},
    "rewards": [{"function": {"name": "module:function"}}], "totalSteps": 1, "trainBatchSize": 64, "workers": [POD],
    "apiKey": {"name": "wandb", "key": "key"}, "training": {"totalSteps": 1},
}  # fmt: skip
"""Last part of a field -> a value with which the other fields can be validated."""
NONE = "none"


def complete_pods(spec: Json) -> Json:
    """A copy of the spec whose pods have the fields that a source may not give."""
    complete = deepcopy(spec)
    cluster = complete.setdefault("cluster", {})
    cluster.setdefault("image", VALUES["image"])
    for worker in cluster.setdefault("workers", [{}]):
        worker["resources"] = {**POD["resources"], **worker.get("resources", {})}
        if "accelerator" in worker:
            worker["accelerator"] = {**POD["accelerator"], **worker["accelerator"]}
    return complete


def find_missing(manifest: Json, found: tuple[Finding, ...]) -> list[Finding]:
    """The findings, and those about further missing fields once the missing ones are given."""
    findings = list(found)
    complete = deepcopy(manifest)
    added = findings
    while True:
        given = [_give(complete, each.field) for each in added if each.value == NONE]
        if not any(given):
            return findings
        documents = list(parse_documents("converted", json.dumps(complete).encode()))
        known = {each.field for each in findings}
        added = [each for _, each in validate_documents(documents).findings if each.field not in known]
        findings = [*findings, *(each for each in added if each.value == NONE)]


def _give(manifest: Json, field: str) -> bool:
    """Give a missing field a value. False for a field without one, or if it has a value."""
    name = field.rpartition(".")[2]
    node: Any = manifest
    for part in field.split(".")[:-1]:
        key, _, index = part.removesuffix("]").partition("[")
        node = node.setdefault(key, {}) if isinstance(node, dict) else None
        if index and isinstance(node, list) and int(index) < len(node):
            node = node[int(index)]
    if not isinstance(node, dict) or name not in VALUES or name in node:
        return False
    node[name] = deepcopy(VALUES[name])
    return True
