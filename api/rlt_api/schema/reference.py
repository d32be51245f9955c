"""The API reference pages, generated from the CRDs: one table for each block, with the texts of `kubectl explain`."""

from __future__ import annotations

from typing import Any

from rlt_api.model import INT_OR_STRING

JOB_BLOCKS = "spec.defaults"
"""The field of an RLRuntime that repeats the blocks of a job."""


def build_api_reference(definition: dict[str, Any]) -> str:
    """Return the page in Markdown for a CRD."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [
        "<!-- Generated from api/rlt_api by `make generate`. Do not edit. -->",
        f"# {definition['spec']['names']['kind']} (rlt.dev/v1alpha1)",
        "",
        schema["description"],
    ]
    for block in ("spec", "status"):
        if block in schema["properties"]:
            lines += _block(block, schema["properties"][block])
    return "\n".join(lines) + "\n"


def _block(path: str, schema: dict[str, Any]) -> list[str]:
    lines = ["", f"## {path}", "", schema.get("description", "")]
    if path == JOB_BLOCKS:
        return [*lines, "", "The blocks are the same as in an [RLTrainingJob](rltrainingjob.md)."]
    lines += ["", "| Field | Type | Description |", "|---|---|---|"]
    nested: list[str] = []
    for name, field in schema["properties"].items():
        required = " Required." if name in schema.get("required", []) else ""
        description = (field.get("description", "") + required).replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(field)} | {description} |")
        element = field.get("items", field)
        if "properties" in element:
            suffix = "[]" if field.get("type") == "array" else ""
            nested += _block(f"{path}.{name}{suffix}", element)
    rules = [rule for rule in schema.get("x-kubernetes-validations", []) if "oldSelf" not in rule["rule"]]
    for rule in rules:  # the description of the spec lists the mutable fields
        lines += ["", f"Rule: {rule['message']}."]
    return lines + nested


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    if INT_OR_STRING in field:
        return "integer or string"
    return str(field["type"])
