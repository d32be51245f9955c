"""Types and names of fields in a podTemplate. The API server rejects other types, and KubeRay drops other fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from rlt_api.findings.factors import join_or
from rlt_api.findings.finding import Edit, Finding, child_path, printable, use
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.model import QUANTITY
from rlt_api.validation import template_schema as schema
from rlt_api.validation.structure import report_unknown_field

RULE = "pod-template-shape"
TRUE = ("true", "yes", "on")
FALSE = ("false", "no", "off")


def find_type_mistakes(value: object, kind: schema.Type, path: str) -> Iterator[tuple[Finding, bool]]:
    """Yield the mistakes below a value, each with whether it is certain: a type that the API server rejects, or a name
    that is probably misspelled. Other unknown fields may be of a later version. A null removes a field."""
    if value is None or kind == schema.ANY:
        return
    if isinstance(kind, Mapping):
        yield from _check_object(value, kind, path)
    elif isinstance(kind, tuple):
        if value not in kind:
            shown = [each for each in kind if each]
            meant = find_nearest_word(str(value), shown, max_distance=3)
            fix = f"did you mean {meant}?" if meant else f"use {join_or(shown)}"
            edits = use(path, meant) if meant else ()
            message = f"must be {join_or(shown)}"
            yield Finding(path, printable(str(value)), message, fix, rule=RULE, edits=edits), True
    elif isinstance(kind, str):
        yield from _check_scalar(value, kind, path)
    elif not isinstance(value, list):
        yield _reject(value, "a list", path), True
    else:
        for index, item in enumerate(value):
            at = child_path(path, index)
            yield from _check_needed(item, path, at)
            yield from find_type_mistakes(item, kind[0], at)


@cache
def find_places() -> Mapping[str, str]:
    """Return the fields that occur at one place of the schema: name -> the path of the object with it."""
    places: dict[str, set[str]] = {}
    for path, name in _list_fields(schema.TEMPLATE, "podTemplate"):
        places.setdefault(name, set()).add(path.replace("initContainers", "containers"))
    return {name: paths.pop() for name, paths in places.items() if len(paths) == 1}


def _list_fields(kind: schema.Type, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, Mapping):
        for name, child in kind.items():
            yield path, name
            yield from _list_fields(child, f"{path}.{name}")
    elif isinstance(kind, list):
        yield from _list_fields(kind[0], f"{path}[]")


def _check_needed(item: object, list_path: str, path: str) -> Iterator[tuple[Finding, bool]]:
    for name in schema.NEEDED.get(list_path.rpartition(".")[2], ()):
        if isinstance(item, Mapping) and item.get(name) in (None, ""):
            yield Finding(f"{path}.{name}", "none", "is required", "add it", rule=RULE), True


def _check_object(value: object, kind: Mapping[str, schema.Type], path: str) -> Iterator[tuple[Finding, bool]]:
    if not isinstance(value, Mapping):
        yield _reject(value, "an object", path), True
        return
    for key, child in value.items():
        at = child_path(path, str(key))
        if key in kind:
            yield from find_type_mistakes(child, kind[key], at)
        else:
            finding = report_unknown_field(at, str(key), list(kind), rule=RULE)
            is_misspelled = finding.fix.startswith("did you mean")
            place = None if is_misspelled else find_places().get(str(key))
            if place:
                message = f"is not a field here, but of {place}"
                finding = replace(finding, message=message, fix=f"move it to {place}", edits=())
            yield finding, is_misspelled or place is not None or kind is schema.TEMPLATE


def _check_scalar(value: object, kind: str, path: str) -> Iterator[tuple[Finding, bool]]:
    if kind in (schema.TEXTS, schema.QUANTITIES):
        if not isinstance(value, Mapping):
            yield _reject(value, kind, path), True
            return
        of = schema.STRING if kind == schema.TEXTS else schema.QUANTITY
        for key, child in value.items():
            if child is not None:
                yield from _check_scalar(child, of, child_path(path, str(key)))
        return
    if not _matches(value, kind):
        yield _reject(value, kind, path), True


def _matches(value: object, kind: str) -> bool:
    if kind == schema.FLAG:
        return isinstance(value, bool)
    if kind == schema.INTEGER:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == schema.STRING:
        return isinstance(value, str)
    if kind == schema.PORT:
        return isinstance(value, int | str) and not isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and re.fullmatch(QUANTITY, value) is not None)


def _reject(value: Any, what: str, path: str) -> Finding:
    fix = f"use {what}"
    edits: tuple[Edit, ...] = ()
    text = str(value)
    if what == schema.INTEGER and isinstance(value, str) and value.isdecimal():
        fix = f"write {value} without quotes"
        edits = use(path, int(value))
    elif what == schema.FLAG and text.lower() in (*TRUE, *FALSE):
        flag = text.lower() in TRUE
        shown = str(flag).lower()
        fix = f"write {shown} without quotes" if text.lower() == shown else f"use {shown}"
        edits = use(path, flag)
    elif what == schema.STRING and isinstance(value, bool | int | float):
        shown = str(value).lower() if isinstance(value, bool) else text
        fix = f'write "{shown}" in quotes'
        edits = use(path, shown)
    return Finding(path, printable(text), f"must be {what}", fix, rule=RULE, edits=edits)


def list_mounts_without_volume(pod: Mapping[str, Any], own: Sequence[str], path: str) -> Iterator[Finding]:
    """Yield the mounts whose volume is neither in the podTemplate nor one of the operator's: names, or patterns."""
    volumes = pod.get("volumes")
    names = [each.get("name") for each in volumes if isinstance(each, Mapping)] if isinstance(volumes, list) else []
    for group in ("containers", "initContainers"):
        containers = pod.get(group)
        for index, container in enumerate(containers if isinstance(containers, list) else []):
            mounts = container.get("volumeMounts") if isinstance(container, Mapping) else None
            for number, mount in enumerate(mounts if isinstance(mounts, list) else []):
                name = mount.get("name") if isinstance(mount, Mapping) else None
                if not isinstance(name, str) or name in names or any(re.fullmatch(each, name) for each in own):
                    continue
                at = f"{path}.{group}[{index}].volumeMounts[{number}].name"
                meant = find_nearest_word(name, [each for each in names if isinstance(each, str)], max_distance=2)
                fix = f"did you mean {meant}?" if meant else f"add a volume of this name to {path}.volumes"
                edits = use(at, meant) if meant else ()
                message = "is not a volume of these pods"
                involved = (f"{path}.volumes",)
                yield Finding(at, name, message, fix, rule=RULE, involved=involved, edits=edits)
