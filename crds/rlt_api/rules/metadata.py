"""An object's name and labels, as the API server and KubeRay want them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlt_api.crd import MAX_NAME_LENGTH
from rlt_api.finding import Finding, child, shown
from rlt_api.rules.pods import is_label_key, is_label_value

NAME = "metadata.name"
MAX_ANNOTATIONS_LENGTH = 256 * 1024
"""Bytes of all keys and values (apimachinery, TotalAnnotationSizeLimitB)."""
SUFFIX = 5
"""Characters that the API server appends to generateName."""


def job_name(name: str) -> Iterator[Finding]:
    """The name of an RLTrainingJob: pods and services are called after it."""
    if len(name) > MAX_NAME_LENGTH:
        message = f"has {len(name)} characters, and {MAX_NAME_LENGTH} are allowed: pods and services add to it"
        yield Finding(NAME, shown(name), message, f"use {name[:MAX_NAME_LENGTH].rstrip('-.')}", "name")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):  # the head's service is named after it: RFC 1035
        words = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:MAX_NAME_LENGTH].rstrip("-")
        fix = f"use {words}" if re.match("[a-z]", words) else f"use {f'job-{words}'.rstrip('-')[:MAX_NAME_LENGTH]}"
        message = "must start with a letter and hold lower-case letters, digits and - only"
        yield Finding(NAME, shown(name), message, fix, "name")


def object_name(name: str) -> Iterator[Finding]:
    """The name of any object: an RFC 1123 subdomain."""
    part = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    if len(name) > 253 or not re.fullmatch(rf"{part}(\.{part})*", name):
        message = "must hold lower-case letters, digits, - and . only, begin and end with a letter or digit"
        yield Finding(NAME, shown(name), message, "choose another one", "name")


def labels_and_annotations(metadata: Mapping[str, object]) -> Iterator[Finding]:
    """Their syntax."""
    for block in ("labels", "annotations"):
        pairs = metadata.get(block)
        if pairs is None:
            continue
        if not isinstance(pairs, Mapping):
            yield Finding(f"metadata.{block}", type(pairs).__name__, "must be an object", "write name: value", "label")
            continue
        for key, value in pairs.items():
            yield from _pair(block, str(key), value)
        size = sum(len(str(each).encode(errors="replace")) for pair in pairs.items() for each in pair)
        if block == "annotations" and size > MAX_ANNOTATIONS_LENGTH:
            message = f"take {size} bytes, and {MAX_ANNOTATIONS_LENGTH} are allowed"
            yield Finding("metadata.annotations", f"{size} bytes", message, "make them smaller", "label")


def _pair(block: str, key: str, value: object) -> Iterator[Finding]:
    field = child(f"metadata.{block}", key)
    if value is not None and not isinstance(value, str):
        yield Finding(field, shown(str(value)), "must be text", f'write "{value}" in quotes'[:200], "label")
    elif not is_label_key(key if block == "labels" else key.lower()):
        yield Finding(field, shown(key), "is no name of a label or annotation", "write [prefix/]name", "label")
    elif block == "labels" and not is_label_value(value or ""):
        message = "is no label's value: up to 63 letters, digits, - _ and ."
        yield Finding(field, shown(str(value)), message, "choose another one", "label")
