"""A runtime's limits on fields of its jobs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from rlt_api.findings.finding import Finding, child_path, printable
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.model import quantity_value
from rlt_api.rules.queues import KUEUE_LABEL
from rlt_api.schema.model_schema import Schema, walk_leaves
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import GENERATION_BLOCKS, TRAINING_BLOCKS, JobMaximum, Limit, RLRuntimeSpec

QUEUE_NAME = "spec.scheduling.queueName"
REPLICAS = "spec.cluster.workers[].replicas"
OTHER_REPLICAS = ("spec.cluster.workers[].maxReplicas", "spec.rolloutReplicas")
"""What a limit on REPLICAS applies to as well."""
MISSING = "is not set, and the runtime limits it"
QUANTITY = r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?"


def validate_within_limits(
    spec: RLTrainingJobSpec, runtime: RLRuntimeSpec, queue_label: str | None = None
) -> Iterator[Finding]:
    """Validate the resolved spec of a job, with its defaults, against the limits of its runtime.

    `queue_label` is the value of the job's label for Kueue, which overrides spec.scheduling.queueName.
    """
    resolved = spec.to_json()
    unused = _list_unused_blocks(spec)
    for limit in runtime.limits:
        for path, value in find_values(resolved, limit.field):
            yield from _validate_limit(limit, path, value)
        for other in OTHER_REPLICAS if limit.field == REPLICAS else ():
            for path, value in find_values(resolved, other):
                yield from _validate_limit(limit, path, value)
        if limit.field == QUEUE_NAME and queue_label is not None:
            yield from _validate_limit(limit, f"metadata.labels[{KUEUE_LABEL}]", queue_label)
        elif not limit.optional and limit.field.split(".")[1] not in unused:
            for path in find_missing(resolved, limit.field):
                yield Finding(path, "none", MISSING, f"set it to {_describe(limit)}", rule="runtime-limit")
    if runtime.max_per_job is not None:
        yield from _validate_maximum(spec, runtime.max_per_job)


def _validate_maximum(spec: RLTrainingJobSpec, maximum: JobMaximum) -> Iterator[Finding]:
    groups = spec.cluster.workers
    pods = [group.max_replicas or group.replicas for group in groups]
    workers = sum(pods)
    sizes = zip(groups, pods, strict=True)
    accelerators = sum(count * group.accelerator.count for group, count in sizes if group.accelerator)
    totals = (("workers", workers, maximum.workers), ("accelerators", accelerators, maximum.accelerators))
    for what, total, most in totals:
        if most is not None and total > most:
            message = f"is above the runtime's maximum of {most} for a job (maxPerJob.{what})"
            fix = f"use at most {most} {what} in all worker groups together"
            yield Finding("spec.cluster.workers", f"{total} {what}", message, fix, rule="runtime-limit")


def _list_unused_blocks(spec: RLTrainingJobSpec) -> tuple[str, ...]:
    """Blocks that the job does not use. It cannot set their fields."""
    if spec.framework.type == "command":
        return TRAINING_BLOCKS
    return GENERATION_BLOCKS if spec.algorithm.dpo is not None else ()


def validate_limits(runtime: RLRuntimeSpec) -> Iterator[Finding]:
    """Validate the limits of a runtime: each names an existing field and allows at least one value."""
    maximum = runtime.max_per_job
    if maximum is not None and maximum.workers is None and maximum.accelerators is None:
        message = "must have workers or accelerators"
        yield Finding("spec.maxPerJob", "none", message, "add at least one of them", rule="limit")
    known = {path.removesuffix("[]"): schema for path, schema in walk_leaves(RLTrainingJobSpec)}
    for index, limit in enumerate(runtime.limits):
        field = f"spec.limits[{index}]"
        if limit.max is None and limit.min is None and limit.allowed is None:
            yield Finding(field, "none", "must have max, min or allowed", "add at least one of them", rule="limit")
        if limit.min is not None and limit.max is not None and limit.min > limit.max:
            most = _plain(limit.max)
            fix = f"use {most} or less"
            yield Finding(f"{field}.min", _plain(limit.min), f"is above max {most}", fix, rule="limit")
        if not any(_is_name_of(limit.field, path, schema) for path, schema in known.items()):
            deep = sorted(
                path for path in known if path.startswith(f"{limit.field}.") or path.startswith(f"{limit.field}[].")
            )
            meant = deep[0] if deep else find_nearest_word(limit.field, known, max_distance=8)
            fix = f"did you mean {meant}?" if meant else "see kubectl explain rltrainingjob.spec"
            yield Finding(f"{field}.field", limit.field, "is not a field of a job with a value", fix, rule="limit")


def _is_name_of(field: str, path: str, schema: Schema) -> bool:
    """Whether a limit's field, in which * stands for any name, is the path, or below it in a podTemplate or a map."""
    given = field.replace("[]", "").split(".")
    known = path.replace("[]", "").split(".")
    if len(given) > len(known) and "additionalProperties" not in schema:
        return False
    matched = zip(given, known, strict=False)
    return len(given) >= len(known) and all(one in ("*", other) for one, other in matched)


def find_values(spec: Mapping[str, Any], field: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each field that a limit applies to: [] stands for every item, * for every field.

    A null above the field in a podTemplate removes the field, so that it is its value.
    """
    found: list[tuple[str, Any]] = [("spec", spec)]
    for part in field.removeprefix("spec.").split("."):
        name = part.removesuffix("[]")
        yield from ((path, None) for path, at in found if at is None)
        found = [
            (child_path(path, key), at[key])
            for path, at in found
            if isinstance(at, Mapping)
            for key in (at if name == "*" else [name])
            if key in at
        ]
        lists = [(path, at) for path, at in found if isinstance(at, list)]
        found = [pair for pair in found if not isinstance(pair[1], list)]
        found += [(f"{path}[{index}]", item) for path, at in lists for index, item in enumerate(at)]
    yield from found


def find_missing(spec: Mapping[str, Any], field: str) -> Iterator[str]:
    """Yield the path of each field without a value that a limit applies to. Keys of a map and of a podTemplate have
    none: they may be absent."""
    parent, _, name = field.rpartition(".")
    for path, at in [("spec", spec)] if parent == "spec" else find_values(spec, parent):
        key = name.removesuffix("[]")
        if isinstance(at, Mapping) and key not in at and re.sub(r"\[\d+\]", "", f"{path}.{key}") in _list_fields():
            yield child_path(path, key)


@functools.cache
def _list_fields() -> frozenset[str]:
    """The fields of a job with a value that is not a list, without []."""
    return frozenset(path.replace("[]", "") for path, _ in walk_leaves(RLTrainingJobSpec) if not path.endswith("[]"))


def _describe(limit: Limit) -> str:
    """The values that the limit allows."""
    if limit.allowed is not None:
        return f"one of {', '.join(limit.allowed)}"
    bounds = [f"{_plain(limit.min)} or more"] if limit.min is not None else []
    bounds += [f"{_plain(limit.max)} or less"] if limit.max is not None else []
    return " and ".join(bounds)


def _validate_limit(limit: Limit, path: str, value: Any) -> Iterator[Finding]:
    number = _number(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    rule = "runtime-limit"
    if number is None and (limit.max is not None or limit.min is not None):
        message = "is not a number that the runtime's limit applies to"
        yield Finding(path, printable(text), message, "use a number or a quantity such as 64Gi", rule=rule)
    if number is not None and limit.max is not None and number > limit.max:
        maximum = _plain(limit.max)
        yield Finding(path, text, f"is above the runtime's limit {maximum}", f"use {maximum} or less", rule=rule)
    if number is not None and limit.min is not None and number < limit.min:
        minimum = _plain(limit.min)
        yield Finding(path, text, f"is below the runtime's limit {minimum}", f"use {minimum} or more", rule=rule)
    if limit.allowed is not None and not any(fnmatchcase(text, pattern) for pattern in limit.allowed):
        meant = find_nearest_word(text, limit.allowed, max_distance=2)
        fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(limit.allowed)}"
        yield Finding(path, printable(text), "is not allowed by the runtime", fix, rule=rule)


def _plain(number: float) -> str:
    return str(int(number)) if number.is_integer() else f"{number:g}"


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return quantity_value(value) if isinstance(value, str) and re.fullmatch(QUANTITY, value) else None
