"""Validation of manifests, the same for the command line, the webhook and the operator.

In this order: size, type and bounds of each field, unknown fields, then the rules over several fields (`rules/`), on
the job and its runtime as one spec. Beside invalid fields, the rules apply as far as they do not read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from rlt_api.findings.finding import Finding, child_path, printable, use
from rlt_api.frameworks.framework_rules import report_unused_option
from rlt_api.model import ApiModel
from rlt_api.rules.choices import TYPE
from rlt_api.rules.limits import validate_within_limits
from rlt_api.rules.metadata import GENERATED_SUFFIX_LENGTH, validate_labels_and_annotations, validate_object_name
from rlt_api.rules.pod_templates import validate_pod_templates
from rlt_api.rules.pools import validate_pools
from rlt_api.rules.queues import KUEUE_LABEL
from rlt_api.schema.crd import GROUP, KIND, RUNTIME_KIND, VERSION
from rlt_api.schema.model_schema import load_schema
from rlt_api.schema.normalize import find_non_json, normalize
from rlt_api.spec.immutability import changed_blocks
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec, resolve
from rlt_api.spec.runtime_policy import ANY_RUNTIME, RuntimePolicy, add_default_runtime, validate_runtime_given
from rlt_api.validation import rules
from rlt_api.validation.set_aside import Readable, hide, set_aside, until_unreadable
from rlt_api.validation.size import validate_size
from rlt_api.validation.structure import MAX_FINDINGS, convert_errors, find_nearest_name, report_unknown_field

Json = Mapping[str, Any]

METADATA_FIELDS = (
    "name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid",
    "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "selfLink",
)  # fmt: skip
"""The fields of ObjectMeta (meta/v1)."""


@dataclass(frozen=True)
class Validated:
    """The result of a validation: a job's spec and its errors."""

    findings: tuple[Finding, ...]
    """Empty if the job is valid."""
    spec: RLTrainingJobSpec | None
    """The job and its runtime as one spec. None if types or bounds are invalid."""


def validate_job(
    name: str,
    spec: Json,
    runtime: Json | None = None,
    policy: RuntimePolicy = ANY_RUNTIME,
    queue_label: str | None = None,
) -> Validated:
    """Validate a job's spec as the user wrote it, with the spec of its runtime if that is available.

    If the named or default runtime is not available, only rules whose fields the job itself gives apply. `queue_label`
    is the value of the job's label for Kueue.
    """
    if found := list(validate_structure(spec, RLTrainingJobSpec, "spec")):
        explained = [_explain_unused_option(each, spec) for each in found]
        others = _set_aside(spec, found)
        broken = _apply_rules(name, others, runtime, policy, queue_label).findings if others else ()
        return Validated((*explained, *broken), None)
    return _apply_rules(name, Readable(spec, frozenset()), runtime, policy, queue_label)


def _apply_rules(
    name: str, readable: Readable, runtime: Json | None, policy: RuntimePolicy, queue_label: str | None
) -> Validated:
    """Validate a job's spec with valid types and bounds, with its runtime."""
    spec = normalize(readable.spec, load_schema(RLTrainingJobSpec))
    merged = resolve(spec, runtime)
    if runtime is not None and (found := list(validate_size(merged, load_schema(RLTrainingJobSpec), "spec"))):
        return Validated(tuple(found), None)
    try:
        resolved = RLTrainingJobSpec.model_validate(merged, by_alias=True, by_name=False)
    except ValidationError as error:  # each of the two is valid, and their combination is not
        found = [] if readable.hidden else list(convert_errors(error, RLTrainingJobSpec, "spec"))
        return Validated(tuple(found), None)
    resolved = hide(resolved, readable.hidden)
    found = rules.validate_job_spec(name, resolved)
    if runtime is None and (policy.unknown or "runtimeRef" in add_default_runtime(spec, policy)):
        found = _independent_of_runtime(found, spec)
    found += validate_runtime_given(spec, policy)
    if runtime is not None:
        try:
            limits = RLRuntimeSpec.model_validate(runtime)
            found += until_unreadable(validate_pools, resolved, limits)
            found += until_unreadable(validate_within_limits, resolved, limits, queue_label)
            found += validate_pod_templates(spec, limits)
        except ValidationError as error:  # the snapshot of a newer version
            found += convert_errors(error, RLRuntimeSpec, "runtime.spec")
    return Validated(tuple(found), resolved)


def validate_runtime(spec: Json) -> tuple[Finding, ...]:
    """Validate an RLRuntime's spec. A rule applies to its defaults if they give all fields of the rule."""
    found = list(validate_structure(spec, RLRuntimeSpec, "spec"))
    if found:
        return tuple(found)
    spec = normalize(spec, load_schema(RLRuntimeSpec))
    defaults = spec.get("defaults", {})
    partial = RLTrainingJobSpec.model_validate(defaults, by_alias=True, by_name=False)
    for finding in _independent_of_runtime(rules.validate_spec(partial), defaults):
        if TYPE in finding.involved:  # the job alone selects the framework
            continue
        found.append(replace(finding, field=finding.field.replace("spec", "spec.defaults", 1)))
    found += rules.validate_runtime_spec(RLRuntimeSpec.model_validate(spec, by_alias=True, by_name=False))
    return tuple(found)


def validate_change(old: Json, new: Json) -> tuple[Finding, ...]:
    """Validate an update of a job's spec: one finding for each immutable block that differs."""
    return tuple(
        Finding(
            f"spec.{block}",
            "changed",
            "is immutable",
            "create a job with another name, or delete this one first",
            rule="immutable",
        )
        for block in changed_blocks(old, new)
    )


def validate_manifest(
    manifest: Json, runtimes: Mapping[str, Json], policy: RuntimePolicy = ANY_RUNTIME
) -> tuple[Finding, ...]:
    """Validate a whole RLTrainingJob or RLRuntime; `runtimes` are the specs of the available ones by name."""
    found = list(_validate_envelope(manifest))
    spec = manifest.get("spec")
    if any(each.field in ("apiVersion", "kind") for each in found) or not isinstance(spec, Mapping):
        return tuple(found)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or any(each.rule == "json" for each in found):
        metadata = {}
    found += validate_labels_and_annotations(metadata)
    name = _find_name(metadata)
    if manifest["kind"] == RUNTIME_KIND:
        return (*found, *validate_object_name(name), *validate_runtime(spec))
    reference = add_default_runtime(spec, policy).get("runtimeRef")
    runtime_name = reference.get("name") if isinstance(reference, dict) else None
    runtime = runtimes.get(runtime_name) if isinstance(runtime_name, str) else None
    return (*found, *validate_job(name, spec, runtime, policy, get_queue_label(metadata)).findings)


def _find_name(metadata: Json) -> str:
    """Return the name that the object will have. A valid one for metadata with an error about it."""
    name = metadata.get("name")
    prefix = metadata.get("generateName")
    if name and isinstance(name, str):
        return name
    return prefix + "x" * GENERATED_SUFFIX_LENGTH if prefix and isinstance(prefix, str) else "x"


def get_queue_label(metadata: Json) -> str | None:
    """Value of a job's label for Kueue."""
    labels = metadata.get("labels")
    value = labels.get(KUEUE_LABEL) if isinstance(labels, Mapping) else None
    return value if isinstance(value, str) else None


def validate_structure(value: Json, model: type[ApiModel], path: str) -> Iterator[Finding]:
    """Validate the size, then types, bounds and unknown fields as the API server does."""
    schema = load_schema(model)
    if found := list(validate_size(value, schema, path)) or list(islice(find_non_json(value, path), MAX_FINDINGS)):
        yield from found
        return
    text = json.dumps(normalize(value, schema))
    try:
        model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        yield from convert_errors(error, model, path)


def _set_aside(spec: Json, invalid: Sequence[Finding]) -> Readable | None:
    """Set invalid fields aside, unless they are too many to be listed, or the spec is too large or deep for a copy."""
    if len(invalid) >= MAX_FINDINGS or any(each.rule != "schema" for each in invalid):
        return None
    return set_aside(spec, invalid, lambda rest: validate_structure(rest, RLTrainingJobSpec, "spec"))


def _explain_unused_option(finding: Finding, spec: Json) -> Finding:
    """Replace a finding about the value of a spec.framework field if its type does not use the field."""
    parent, _, field = finding.field.rpartition(".")
    framework = spec.get("framework")
    if parent != "spec.framework" or not isinstance(framework, Mapping):
        return finding
    return report_unused_option(field, str(framework.get("type") or "builtin")) or finding


def given_paths(value: object, path: str) -> Iterator[str]:
    """Yield the path of every given value, such as spec.cluster.workers[0].replicas, and of its parents."""
    yield path
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from given_paths(each, child_path(path, key))
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from given_paths(each, child_path(path, index))


def _independent_of_runtime(found: Iterable[Finding], spec: Json) -> list[Finding]:
    """Return the findings that no value of a missing field can resolve. Only the job gives name and framework."""
    given = set(given_paths(spec, "spec"))
    return [
        each
        for each in found
        if all(
            path in given or path.startswith(("metadata.", "spec.framework")) for path in (each.field, *each.involved)
        )
    ]


def _validate_envelope(manifest: Json) -> Iterator[Finding]:
    version = f"{GROUP}/{VERSION}"
    if manifest.get("apiVersion") != version:
        value = printable(str(manifest.get("apiVersion", "none")))
        yield Finding("apiVersion", value, "is not an rlt API version", f"use {version}")
    kind = manifest.get("kind")
    if kind not in (KIND, RUNTIME_KIND):
        meant = find_nearest_name(str(kind), [KIND, RUNTIME_KIND]) or KIND
        yield Finding("kind", printable(str(kind or "none")), "is not an rlt kind", f"use {meant}")
    yield from _validate_metadata(manifest.get("metadata"))
    if not isinstance(manifest.get("spec"), Mapping):
        yield Finding("spec", "none", "is required and must be an object", "add spec")
    known = ["apiVersion", "kind", "metadata", "spec", "status"]
    for key in manifest:
        if key not in known:
            yield report_unknown_field(printable(str(key)), str(key), known)


def _validate_metadata(metadata: object) -> Iterator[Finding]:
    if not isinstance(metadata, Mapping):
        yield Finding("metadata.name", "none", "is required", "add a name")
        return
    yield from find_non_json(metadata, "metadata")
    for key in ("name", "generateName"):
        if metadata.get(key) is not None and not isinstance(metadata[key], str):
            yield Finding(f"metadata.{key}", printable(str(metadata[key])), "must be text", "write it in quotes")
    if not metadata.get("name") and not metadata.get("generateName"):
        yield Finding("metadata.name", "none", "is required", "add a name")
    namespace = metadata.get("namespace")
    if isinstance(namespace, str) and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        message = "must consist of up to 63 lower-case letters, digits and -"
        valid = re.sub(r"[^a-z0-9]+", "-", namespace.lower())[:63].strip("-") or "default"
        field = "metadata.namespace"
        yield Finding(field, printable(namespace), message, f"use {valid}", rule="name", edits=use(field, valid))
    for key in metadata:
        if key not in METADATA_FIELDS:
            yield report_unknown_field(child_path("metadata", str(key)), str(key), list(METADATA_FIELDS))
