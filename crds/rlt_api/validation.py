"""Whether a manifest is right: one answer for the command line, the webhook and the operator.

In this order: type and bounds of each field, unknown fields, then the rules over several fields (`rules/`), on the job
and its runtime as one spec.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from rlt_api import rules
from rlt_api.crd import GROUP, KIND, RUNTIME_KIND, VERSION
from rlt_api.finding import Finding, child, shown
from rlt_api.immutability import changed
from rlt_api.model import ApiModel
from rlt_api.normalize import normalize, not_json
from rlt_api.rules.choices import TYPE
from rlt_api.rules.metadata import SUFFIX, labels_and_annotations, object_name
from rlt_api.runtime import RLRuntimeSpec, resolve
from rlt_api.schema import schema_of
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.structure import MOST, nearest, schema_findings, unknown

__all__ = [
    "Validated", "nearest", "paths", "structure", "validate_change", "validate_job", "validate_manifest",
    "validate_runtime",
]  # fmt: skip

Json = Mapping[str, Any]

LARGEST = 2**20
"""Bytes of a spec as JSON: what the operator makes of it must go into a ConfigMap, which holds 1 MiB."""
METADATA = (
    "name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid",
    "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "selfLink",
)  # fmt: skip
"""The fields of ObjectMeta (meta/v1)."""


@dataclass(frozen=True)
class Validated:
    """A job's spec with what is wrong with it."""

    findings: tuple[Finding, ...]
    """Empty if the job may run."""
    spec: RLTrainingJobSpec | None
    """The job and its runtime as one spec. None if types or bounds are wrong."""


def validate_job(name: str, spec: Json, runtime: Json | None = None) -> Validated:
    """A job's spec as its user gave it, with the spec of its runtime if that is at hand.

    A job that names a runtime that is not at hand is held only to rules whose fields it gives itself.
    """
    found = list(structure(spec, RLTrainingJobSpec, "spec"))
    if found:
        return Validated(tuple(found), None)
    spec = normalize(spec, schema_of(RLTrainingJobSpec))
    try:
        resolved = RLTrainingJobSpec.model_validate(resolve(spec, runtime), by_alias=True, by_name=False)
    except ValidationError as error:  # each is right by itself, and together they are not
        return Validated(tuple(schema_findings(error, RLTrainingJobSpec, "spec")), None)
    found = rules.findings(name, resolved)
    if runtime is None and "runtimeRef" in spec:
        found = _decided(found, spec)
    if runtime is not None:
        try:
            found += rules.limits(resolved, RLRuntimeSpec.model_validate(runtime))
        except ValidationError as error:  # the snapshot of a newer version
            found += schema_findings(error, RLRuntimeSpec, "runtime.spec")
    return Validated(tuple(found), resolved)


def validate_runtime(spec: Json) -> tuple[Finding, ...]:
    """An RLRuntime's spec. Its defaults are held to every rule whose fields they give."""
    found = list(structure(spec, RLRuntimeSpec, "spec"))
    if found:
        return tuple(found)
    spec = normalize(spec, schema_of(RLRuntimeSpec))
    defaults = spec.get("defaults", {})
    partial = RLTrainingJobSpec.model_validate(defaults, by_alias=True, by_name=False)
    for finding in _decided(rules.spec_findings(partial), defaults):
        if TYPE in finding.involved:  # which framework a job has is for the job to say
            continue
        found.append(replace(finding, field=finding.field.replace("spec", "spec.defaults", 1)))
    found += rules.runtime_findings(RLRuntimeSpec.model_validate(spec, by_alias=True, by_name=False))
    return tuple(found)


def validate_change(old: Json, new: Json) -> tuple[Finding, ...]:
    """A job's spec before and after a change: what a change could not be honoured in stays as it is."""
    return tuple(
        Finding(
            f"spec.{block}",
            "changed",
            "is fixed once the job exists",
            "give a new job another name, or delete this one first",
            "immutable",
        )
        for block in changed(old, new)
    )


def validate_manifest(manifest: Json, runtimes: Mapping[str, Json]) -> tuple[Finding, ...]:
    """A whole RLTrainingJob or RLRuntime; `runtimes` are the specs of those at hand, by name."""
    found = list(_envelope(manifest))
    if found:
        return tuple(found)
    metadata, spec = manifest["metadata"], manifest["spec"]
    name = metadata.get("name") or metadata["generateName"] + "x" * SUFFIX
    found = list(labels_and_annotations(metadata))
    if manifest["kind"] == RUNTIME_KIND:
        return (*object_name(name), *found, *validate_runtime(spec))
    reference = spec.get("runtimeRef")
    named = reference.get("name") if isinstance(reference, dict) else None
    runtime = runtimes.get(named) if isinstance(named, str) else None
    return (*found, *validate_job(name, spec, runtime).findings)


def structure(value: Json, model: type[ApiModel], path: str) -> Iterator[Finding]:
    """Types, bounds and unknown fields, as the API server sees them."""
    strange = list(islice(not_json(value, path), MOST))
    if strange:
        yield from strange
        return
    text = json.dumps(normalize(value, schema_of(model)))
    if len(text) > LARGEST:
        message = f"is more than the {LARGEST} bytes that a spec may have"
        yield Finding(path, f"{len(text)} bytes", message, "put what is large into a volume or the image", "size")
        return
    try:
        model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        yield from schema_findings(error, model, path)


def paths(value: object, path: str) -> Iterator[str]:
    """The paths of everything given, such as spec.cluster.workers[0].replicas, and of what they lie in."""
    yield path
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from paths(each, child(path, key))
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from paths(each, child(path, index))


def _decided(found: Sequence[Finding] | Iterator[Finding], spec: Json) -> list[Finding]:
    """The findings that no other value of what is not given could undo. Name and framework are the job's alone."""
    given = set(paths(spec, "spec"))
    return [
        each
        for each in found
        if all(
            path in given or path.startswith(("metadata.", "spec.framework")) for path in (each.field, *each.involved)
        )
    ]


def _envelope(manifest: Json) -> Iterator[Finding]:
    version = f"{GROUP}/{VERSION}"
    if manifest.get("apiVersion") != version:
        yield Finding("apiVersion", shown(str(manifest.get("apiVersion", "none"))), "is not ours", f"write {version}")
    kind = manifest.get("kind")
    if kind not in (KIND, RUNTIME_KIND):
        meant = nearest(str(kind), [KIND, RUNTIME_KIND]) or KIND
        yield Finding("kind", shown(str(kind or "none")), "is not ours", f"write {meant}")
    yield from _metadata(manifest.get("metadata"))
    if not isinstance(manifest.get("spec"), Mapping):
        yield Finding("spec", "none", "is required and must be an object", "add spec")
    known = ["apiVersion", "kind", "metadata", "spec", "status"]
    for key in manifest:
        if key not in known:
            yield unknown(shown(str(key)), str(key), known)


def _metadata(metadata: object) -> Iterator[Finding]:
    if not isinstance(metadata, Mapping):
        yield Finding("metadata.name", "none", "is required", "give the object a name")
        return
    yield from not_json(metadata, "metadata")
    for key in ("name", "generateName"):
        if metadata.get(key) is not None and not isinstance(metadata[key], str):
            yield Finding(f"metadata.{key}", shown(str(metadata[key])), "must be text", "write it in quotes")
    if not metadata.get("name") and not metadata.get("generateName"):
        yield Finding("metadata.name", "none", "is required", "give the object a name")
    for key in metadata:
        if key not in METADATA:
            yield unknown(child("metadata", str(key)), str(key), list(METADATA))
