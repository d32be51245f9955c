"""The API reference pages, made from the CRDs: one table a block, so that it says what `kubectl explain` says."""

from __future__ import annotations

from typing import Any

JOB_BLOCKS = "spec.defaults"
"""Where an RLRuntime repeats the blocks of a job."""


def api_reference(definition: dict[str, Any]) -> str:
    """The page in Markdown for the CRD given as a dictionary."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [
        "<!-- Generated from crds/rlt_api by `make generate`. Do not edit. -->",
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
        return [*lines, "", "The blocks are those of a job: see [RLTrainingJob](rltrainingjob.md)."]
    lines += ["", "| field | type | what it is |", "|---|---|---|"]
    nested: list[str] = []
    for name, field in schema["properties"].items():
        required = " Required." if name in schema.get("required", []) else ""
        description = (field.get("description", "") + required).replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(field)} | {description} |")
        element = field.get("items", field)
        if "properties" in element:
            suffix = "[]" if field["type"] == "array" else ""
            nested += _block(f"{path}.{name}{suffix}", element)
    for rule in schema.get("x-kubernetes-validations", []):
        lines += ["", f"Rule: {rule['message']}."]
    return lines + nested


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return str(field["type"])
