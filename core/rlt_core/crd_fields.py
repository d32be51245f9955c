"""The fields that a CustomResourceDefinition has, as paths. Pure.

``spec.workerGroupSpecs[].template.spec.nodeSelector{}``: [] is an item of a list, {} a value of a map with arbitrary
keys, and ``.*`` a child of an object that accepts any field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
"""Part of an OpenAPI v3 schema."""


def list_fields(crd: Mapping[str, Any], version: str) -> frozenset[str]:
    """The fields in a version of the CRD (apiextensions.k8s.io/v1). Empty if the CRD does not have the version."""
    schemas = [each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"] if each["name"] == version]
    return frozenset(path for schema in schemas for path in _iterate_paths(schema, ""))


def list_missing_fields(installed: frozenset[str], expected: frozenset[str]) -> list[str]:
    """The expected fields that the installed CRD lacks, without the fields below a missing one."""
    missing: list[str] = []
    for path in sorted(expected - installed):
        below_missing = missing and path.startswith((f"{missing[-1]}.", f"{missing[-1]}[", f"{missing[-1]}{{"))
        if not below_missing and not path.endswith(".*") and not _is_below_open(installed, path):
            missing.append(path)
    return missing


def join(path: str, name: str) -> str:
    """The path of a field below another path."""
    return f"{path}.{name}" if path else name


def _is_below_open(installed: frozenset[str], path: str) -> bool:
    parts = path.split(".")
    return any(f"{'.'.join(parts[:count])}.*" in installed for count in range(1, len(parts)))


def _iterate_paths(schema: Schema, path: str) -> Iterator[str]:
    yield path
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path}.*"
    for name, child in schema.get("properties", {}).items():
        yield from _iterate_paths(child, join(path, name))
    if "items" in schema:
        yield from _iterate_paths(schema["items"], f"{path}[]")
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        yield from _iterate_paths(values, f"{path}{{}}")
