"""The CustomResourceDefinition of RLTrainingJob, made from the pydantic types.

Kubernetes wants structural schemas: no `$ref`, no `anyOf` over types, OpenAPI 3.0's boolean exclusive bounds.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import RLTrainingJobStatus

GROUP = "rlt.dev"
VERSION = "v1alpha1"
KIND = "RLTrainingJob"
PLURAL = "rltrainingjobs"

Schema = dict[str, Any]

PRINTER_COLUMNS: list[Schema] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Step", "type": "integer", "jsonPath": ".status.progress.step"},
    {"name": "Progress", "type": "string", "jsonPath": ".status.progress.display"},
    {"name": "Reward", "type": "string", "jsonPath": ".status.progress.metrics.reward"},
    {"name": "ETA", "type": "string", "jsonPath": ".status.progress.eta"},
    {"name": "GPUs", "type": "integer", "jsonPath": ".status.gpus"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "KL", "type": "string", "jsonPath": ".status.progress.metrics.kl", "priority": 1},
    {"name": "Tok/s", "type": "string", "jsonPath": ".status.progress.tokensPerSecond", "priority": 1},
    {"name": "RayCluster", "type": "string", "jsonPath": ".status.rayCluster.name", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
]

MAX_NAME_LENGTH = 40
"""KubeRay appends up to 22 characters to the cluster's name in the names of pods and services, which end at 63."""


def custom_resource_definition() -> Schema:
    """The whole CRD as the API server takes it (apiextensions.k8s.io/v1)."""
    job: Schema = {
        "type": "object",
        "description": "A reinforcement-learning post-training job of a language model.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "rlt.dev/v1alpha1"},
            "kind": {"type": "string", "description": "RLTrainingJob"},
            "metadata": {"type": "object"},
            "spec": structural_schema(RLTrainingJobSpec),
            "status": structural_schema(RLTrainingJobStatus),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
                "message": f"metadata.name may have {MAX_NAME_LENGTH} characters at most: pods and services add to it",
            }
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["rltj"],
                "categories": ["all", "ray"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": PRINTER_COLUMNS,
                    "schema": {"openAPIV3Schema": job},
                }
            ],
        },
    }


def structural_schema(model: type[BaseModel]) -> Schema:
    """A pydantic type as a structural schema, references resolved and defaults kept."""
    schema = model.model_json_schema(by_alias=True)
    return _convert(schema, schema.get("$defs", {}))


_KEPT = {
    "description", "type", "enum", "default", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum",
    "maximum", "required", "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
}  # fmt: skip
_DROPPED = {"title", "$defs", "additionalProperties"}


def _convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return _convert(target | {key: value for key, value in node.items() if key != "$ref"}, definitions)
    if "anyOf" in node:  # only ever `X | None`: an optional field is one that may be absent
        (choice,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        outer = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return _convert(choice | outer, definitions)
    result: Schema = {}
    for key, value in node.items():
        match key:
            case "properties":
                result[key] = {name: _convert(child, definitions) for name, child in value.items()}
            case "items":
                result[key] = _convert(value, definitions)
            case "const":
                result["enum"] = [value]
            case "exclusiveMinimum" | "exclusiveMaximum":
                result[key.removeprefix("exclusive").lower()] = value
                result[key] = True
            case "additionalProperties" if isinstance(value, dict):
                result[key] = _convert(value, definitions)
            case "maxProperties":
                result[key] = value
            case _ if key in _KEPT:
                result[key] = value
            case _:
                assert key in _DROPPED, f"{key} has no counterpart in a structural schema"
    if result.get("type") == "integer":
        result["format"] = "int64"
    if isinstance(result.get("default"), dict):
        # The fields' own defaults fill it, but not before it is checked against `required` and the rules.
        checked = {"required", "x-kubernetes-validations"} & set(result)
        result["default"] = _without_nulls(result["default"]) if checked else {}
    return result


def _without_nulls(value: Schema) -> Schema:
    return {
        key: _without_nulls(child) if isinstance(child, dict) else child
        for key, child in value.items()
        if child is not None
    }
