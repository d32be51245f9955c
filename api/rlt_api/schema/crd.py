"""The CustomResourceDefinitions of RLTrainingJob and RLRuntime, generated from the pydantic types.

Kubernetes requires structural schemas: no `$ref`, no `anyOf` over types except int-or-string,
OpenAPI 3.0's boolean exclusive bounds.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from rlt_api.model import INT_OR_STRING
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.status.job_status import RLTrainingJobStatus

GROUP = "rlt.dev"
VERSION = "v1alpha1"
KIND = "RLTrainingJob"
PLURAL = "rltrainingjobs"
RUNTIME_KIND = "RLRuntime"
RUNTIME_PLURAL = "rlruntimes"

Schema = dict[str, Any]

PRINTER_COLUMNS: list[Schema] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Step", "type": "integer", "jsonPath": ".status.progress.step"},
    {"name": "Progress", "type": "string", "jsonPath": ".status.progress.display"},
    {"name": "Reward", "type": "string", "jsonPath": ".status.progress.reward"},
    {"name": "ETA", "type": "string", "jsonPath": ".status.progress.eta"},
    {"name": "GPUs", "type": "integer", "jsonPath": ".status.gpus"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Model", "type": "string", "jsonPath": ".status.model", "priority": 1},
    {"name": "Algorithm", "type": "string", "jsonPath": ".status.algorithm", "priority": 1},
    {"name": "Step-Reward", "type": "string", "jsonPath": ".status.progress.metrics.reward", "priority": 1},
    {"name": "KL", "type": "string", "jsonPath": ".status.progress.metrics.kl", "priority": 1},
    {"name": "Tok/s", "type": "string", "jsonPath": ".status.progress.tokensPerSecond", "priority": 1},
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts", "priority": 1},
    {"name": "RayCluster", "type": "string", "jsonPath": ".status.rayCluster.name", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
]

RUNTIME_COLUMNS: list[Schema] = [
    {"name": "Ray", "type": "string", "jsonPath": ".spec.rayVersion"},
    {"name": "Pools", "type": "string", "jsonPath": ".spec.nodePools[*].name"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]

MAX_NAME_LENGTH = 40
"""KubeRay appends up to 22 characters to the cluster's name in names of pods and services; their maximum is 63."""


def build_job_crd() -> Schema:
    """Build the CRD of RLTrainingJob (apiextensions.k8s.io/v1)."""
    return _definition(
        kind=KIND,
        plural=PLURAL,
        short_name="rltj",
        scope="Namespaced",
        categories=["all", "ray"],
        columns=PRINTER_COLUMNS,
        description="A reinforcement-learning post-training job of a language model.",
        spec=RLTrainingJobSpec,
        status=RLTrainingJobStatus,
        rules=[
            {
                "rule": f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
                "message": f"metadata.name must have at most {MAX_NAME_LENGTH} characters: names of pods add a suffix",
            }
        ],
    )


def build_runtime_crd() -> Schema:
    """Build the CRD of RLRuntime."""
    return _definition(
        kind=RUNTIME_KIND,
        plural=RUNTIME_PLURAL,
        short_name="rltr",
        scope="Cluster",
        categories=["ray"],
        columns=RUNTIME_COLUMNS,
        description="Images, node pools, defaults and limits of the platform team for all RLTrainingJobs that name it.",
        spec=RLRuntimeSpec,
    )


def _definition(
    *,
    kind: str,
    plural: str,
    short_name: str,
    scope: str,
    categories: list[str],
    columns: list[Schema],
    description: str,
    spec: type[BaseModel],
    status: type[BaseModel] | None = None,
    rules: list[Schema] | None = None,
) -> Schema:
    properties: Schema = {
        "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
        "kind": {"type": "string", "description": kind},
        "metadata": {"type": "object"},
        "spec": build_structural_schema(spec),
    }
    version: Schema = {"name": VERSION, "served": True, "storage": True}
    if status:
        properties["status"] = build_structural_schema(status)
        version["subresources"] = {"status": {}}
    schema: Schema = {"type": "object", "description": description, "required": ["spec"], "properties": properties}
    if rules:
        schema["x-kubernetes-validations"] = rules
    version |= {"additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": categories,
            },
            "versions": [version],
        },
    }


def build_structural_schema(model: type[BaseModel]) -> Schema:
    """Convert a pydantic type to a structural schema: references resolved, defaults in the descriptions.

    The CRD has no defaults: a stored job holds only what its user gave, so that a runtime's defaults can apply (ADR 4).
    """
    schema = model.model_json_schema(by_alias=True)
    return _convert(schema, schema.get("$defs", {}))


_KEPT = {
    "description", "type", "enum", "format", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum",
    "maximum", "required", "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type", INT_OR_STRING,
}  # fmt: skip
_DROPPED = {"title", "$defs", "additionalProperties", "default"}


def _convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return _convert(target | {key: value for key, value in node.items() if key != "$ref"}, definitions)
    if "anyOf" in node:  # always `X | None`: an optional field may be absent
        (choice,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        return _convert(choice | {key: value for key, value in node.items() if key != "anyOf"}, definitions)
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
            case "additionalProperties" if _is_any(value):
                result["x-kubernetes-preserve-unknown-fields"] = True
            case "additionalProperties" if isinstance(value, dict):
                result[key] = _convert(value, definitions)
            case "maxProperties":
                result[key] = value
            case _ if key in _KEPT:
                result[key] = value
            case _:
                assert key in _DROPPED, f"{key} has no counterpart in a structural schema"
    if INT_OR_STRING in result:
        del result["type"]
    if result.get("type") == "integer":
        result["format"] = "int64"
    if "x-kubernetes-preserve-unknown-fields" in result:
        result.pop("maxProperties", None)  # the API server counts only known fields
    if "description" in result:
        result["description"] = _described(node)
    return result


def _is_any(value: object) -> bool:
    """Return whether additionalProperties allows any JSON value."""
    return (
        value is True
        or value == {}
        or (isinstance(value, dict) and set(value) <= {"$ref"} and "JsonValue" in str(value))
    )


def _described(node: Schema) -> str:
    """Return the description with the default appended: the CRD itself has no defaults (ADR 4)."""
    text = " ".join(str(node["description"]).split())
    default = node.get("default")
    if default not in (None, [], {}) and not isinstance(default, dict | list) and "Default:" not in text:
        text += f" Default: {json.dumps(default).strip(chr(34))}."
    return text
