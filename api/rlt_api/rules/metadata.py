"""Names, labels and annotations, by the rules of the API server and KubeRay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlt_api.findings.finding import Finding, child_path, printable
from rlt_api.findings.kinds import replaceable
from rlt_api.rules.pods import is_label_key, is_label_value
from rlt_api.schema.crd import MAX_NAME_LENGTH

NAME = "metadata.name"
MAX_ANNOTATIONS_LENGTH = 256 * 1024
"""Maximum size of all keys and values in bytes (apimachinery, TotalAnnotationSizeLimitB)."""
GENERATED_SUFFIX_LENGTH = 5
"""Number of characters that the API server appends to generateName."""


def validate_job_name(name: str) -> Iterator[Finding]:
    """Validate the name of an RLTrainingJob, which is part of its pods' and services' names."""
    if len(name) > MAX_NAME_LENGTH:
        message = f"has {len(name)} characters, and the maximum is {MAX_NAME_LENGTH}: names of pods add a suffix"
        yield replaceable(NAME, printable(name), message, name[:MAX_NAME_LENGTH].rstrip("-."), rule="name")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):  # it is part of a service name: RFC 1035
        valid = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:MAX_NAME_LENGTH].rstrip("-")
        valid = valid if re.match("[a-z]", valid) else f"job-{valid}"[:MAX_NAME_LENGTH].rstrip("-")
        message = "must start with a letter and contain only lower-case letters, digits and -"
        yield replaceable(NAME, printable(name), message, valid, rule="name")


def validate_object_name(name: str) -> Iterator[Finding]:
    """Validate the name of an object: an RFC 1123 subdomain."""
    part = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    if len(name) > 253 or not re.fullmatch(rf"{part}(\.{part})*", name):
        message = "must contain only lower-case letters, digits, - and ., and start and end with a letter or digit"
        yield Finding(NAME, printable(name), message, "use another name", rule="name")


def validate_labels_and_annotations(metadata: Mapping[str, object]) -> Iterator[Finding]:
    """Validate the syntax of labels and annotations."""
    for block in ("labels", "annotations"):
        field = f"metadata.{block}"
        pairs = metadata.get(block)
        if pairs is None:
            continue
        if not isinstance(pairs, Mapping):
            yield Finding(field, type(pairs).__name__, "must be an object", "write name: value", rule="label")
            continue
        for key, value in pairs.items():
            yield from _validate_label(block, str(key), value)
        size = sum(len(str(text).encode(errors="replace")) for pair in pairs.items() for text in pair)
        if block == "annotations" and size > MAX_ANNOTATIONS_LENGTH:
            message = f"is larger than the maximum of {MAX_ANNOTATIONS_LENGTH} bytes"
            yield Finding(field, f"{size} bytes", message, "remove some of them", rule="label")


def _validate_label(block: str, key: str, value: object) -> Iterator[Finding]:
    field = child_path(f"metadata.{block}", key)
    if value is not None and not isinstance(value, str):
        fix = f'write "{value}" in quotes'[:200]
        yield Finding(field, printable(str(value)), "must be text", fix, rule="label")
    elif not is_label_key(key if block == "labels" else key.lower()):
        message = f"is not a valid {block.removesuffix('s')} key"
        yield Finding(field, printable(key), message, "use [prefix/]name", rule="label")
    elif block == "labels" and not is_label_value(value or ""):
        message = "is not a valid label value: up to 63 letters, digits, - _ and ."
        yield Finding(field, printable(str(value)), message, "use another value", rule="label")
