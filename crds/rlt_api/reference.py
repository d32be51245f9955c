"""The API reference page, made from the CRD: one table a block, so that it says what `kubectl explain` says."""

from __future__ import annotations

from typing import Any


def api_reference(definition: dict[str, Any]) -> str:
    """The page in Markdown for the CRD given as a dictionary."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [
        "<!-- Generated from crds/rlt_api by `make generate`. Do not edit. -->",
        "# RLTrainingJob (rlt.dev/v1alpha1)",
        "",
        schema["description"],
    ]
    for block in ("spec", "status"):
        lines += _block(block, schema["properties"][block])
    return "\n".join(lines) + "\n"


def _block(path: str, schema: dict[str, Any]) -> list[str]:
    lines = ["", f"## {path}", "", schema.get("description", ""), "", "| field | type | default | what it is |"]
    lines.append("|---|---|---|---|")
    nested: list[str] = []
    for name, field in schema["properties"].items():
        default = "required" if name in schema.get("required", []) else _default(field)
        description = field.get("description", "").replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(field)} | {default} | {description} |")
        element = field.get("items", field)
        if "properties" in element:
            suffix = "[]" if field["type"] == "array" else ""
            nested += _block(f"{path}.{name}{suffix}", element)
    for rule in schema.get("x-kubernetes-validations", []):
        lines += ["", f"Rule: {rule['message']}."]
    return lines + nested


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return (
        ""
        if value is None or value == {} or value == []
        else f"`{value}`".replace("True", "true").replace("False", "false")
    )


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return str(field["type"])
