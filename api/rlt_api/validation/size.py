"""The size of a spec and of the free JSON in it, measured before anything else reads it.

Free JSON is what the schema does not describe: podTemplate, engineKwargs and the options of a reward. Rules of the CRD
cannot read it, and the API server does not bound it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.findings.finding import Finding, child_path
from rlt_api.schema.model_schema import Schema, load_schema
from rlt_api.spec.job_spec import RLTrainingJobSpec

MAX_SPEC_BYTES = 2**19
"""Maximum size of a spec as a JSON text within JSON, which escapes quotes again: status.resolvedSpec. The job's object
has it there and in spec, and etcd stores 1.5 MiB."""
MAX_FREE_JSON_BYTES = 2**16
"""Maximum size of all free JSON of a spec together."""


def validate_size(spec: Any, schema: Schema, path: str) -> Iterator[Finding]:
    """Validate the size of a spec, or of a job merged with its runtime. `schema` has all references resolved."""
    total = measure(_dump(spec))
    if total > MAX_SPEC_BYTES:
        message = f"is larger than the maximum of {MAX_SPEC_BYTES} bytes"
        yield Finding(path, f"{total} bytes", message, "move large values to a volume or the image", rule="size")
        return
    sizes = {field: measure(value) for field, value in find_free_json(spec, schema, path)}
    total = sum(sizes.values())
    if total > MAX_FREE_JSON_BYTES:
        field = max(sizes, key=lambda each: sizes[each])
        fields = "podTemplate, engineKwargs and options"
        message = f"makes the values of {fields} together {total} bytes, and their maximum is {MAX_FREE_JSON_BYTES}"
        fix = "move files and scripts to a ConfigMap, a volume or the image"
        yield Finding(field, f"{sizes[field]} bytes", message, fix, rule="size")


def is_too_large(spec: Any) -> bool:
    """Whether the size of a job's spec makes it invalid."""
    return any(validate_size(spec, load_schema(RLTrainingJobSpec), "spec"))


def measure(value: Any) -> int:
    """Number of bytes as compact JSON. 0 for what is not JSON, which `find_non_json` reports."""
    return len(_dump(value).encode("utf-8", "surrogatepass"))


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, TypeError, ValueError):
        return ""


def find_free_json(value: Any, node: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each object whose fields the schema does not describe."""
    if isinstance(value, Mapping):
        fields = node.get("properties") or {}
        others = node.get("additionalProperties") or None
        if not fields and not isinstance(others, dict):
            yield path, value
            return
        for key, each in value.items():
            if child := fields.get(key, others):
                yield from find_free_json(each, child, child_path(path, str(key)))
    elif isinstance(value, list) and isinstance(node.get("items"), dict):
        for index, each in enumerate(value):
            yield from find_free_json(each, node["items"], child_path(path, index))
