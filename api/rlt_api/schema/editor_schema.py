"""The JSON schema for completion and validation of manifests in editors."""

from __future__ import annotations

from rlt_api.model import ApiModel
from rlt_api.schema.crd import GROUP, VERSION


def build_editor_schema(kind: str, model: type[ApiModel]) -> dict[str, object]:
    """Build the JSON schema of a whole manifest. It rejects unknown fields."""
    spec = model.model_json_schema(by_alias=True)
    definitions = spec.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind,
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": f"{GROUP}/{VERSION}"},
            "kind": {"const": kind},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object"},
        },
        "additionalProperties": False,
        "$defs": definitions,
    }
