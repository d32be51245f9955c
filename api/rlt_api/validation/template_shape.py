"""The form of podTemplates: fields that a pod template has, names of containers, and amounts of resources.

KubeRay drops other fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.blocks.resources import Accelerator, Resources
from rlt_api.findings.finding import Finding, child_path, printable, remove, use
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.model import QUANTITY, quantity_value
from rlt_api.rules.pod_templates import RESERVED_VOLUMES
from rlt_api.spec.accelerators import find_vendor
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation import template_schema as schema
from rlt_api.validation.template_types import find_type_mistakes, list_mounts_without_volume

RULE = "pod-template-shape"
COUNT = "accelerator.count"
NAMES = {"head": "ray-head", "worker": "ray-worker"}
"""Kind of pod -> the name of the operator's container in it."""


def validate_template_shape(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A podTemplate must have the types of Kubernetes, no misspelled fields, mounts of volumes that exist, and amounts
    of accelerators that the fields of the job give."""
    yield from (finding for finding, is_certain in _find_mistakes(spec) if is_certain)


def warn_template_shape(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about fields that Kubernetes may have in another version, and about other amounts."""
    yield from (str(finding) for finding, is_certain in _find_mistakes(spec) if not is_certain)


def _find_mistakes(spec: RLTrainingJobSpec) -> Iterator[tuple[Finding, bool]]:
    head = spec.cluster.head
    yield from _check_template(head.pod_template, "spec.cluster.head.podTemplate", "head")
    yield from _compare_amounts(head.pod_template, "spec.cluster.head", "head", _list_amounts(head.resources))
    for index, group in enumerate(spec.cluster.workers):
        path = f"spec.cluster.workers[{index}]"
        amounts = _list_amounts(group.resources, group.accelerator)
        yield from _check_template(group.pod_template, f"{path}.podTemplate", "worker")
        yield from _compare_amounts(group.pod_template, path, "worker", amounts)


def _list_amounts(resources: Resources | None, accelerator: Accelerator | None = None) -> dict[str, tuple[str, str]]:
    """Resource -> its amount in the operator's container, and the field with it."""
    amounts = {}
    if resources:
        amounts = {"cpu": (resources.cpu, "resources.cpu"), "memory": (resources.memory, "resources.memory")}
    if accelerator:
        amounts[accelerator.resource_name] = (str(accelerator.count), "accelerator.count")
    return amounts


def _compare_amounts(
    template: Mapping[str, Any], path: str, kind: str, amounts: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[Finding, bool]]:
    """Requests and limits of the operator's container that differ from the fields, which Ray's resources, /dev/shm and
    the validation of the memory follow. Other accelerators than Ray counts, and a limit below its request, are
    certain."""
    pod = template.get("spec")
    containers = pod.get("containers") if isinstance(pod, Mapping) else None
    for index, container in enumerate(containers if isinstance(containers, list) else []):
        resources = container.get("resources") if isinstance(container, Mapping) else None
        if not isinstance(resources, Mapping) or container.get("name") != NAMES[kind]:
            continue
        for part in ("limits", "requests"):
            given = resources.get(part)
            for name, value in given.items() if isinstance(given, Mapping) else ():
                amount, field = amounts.get(name, ("", ""))
                if not amount and value and kind == "worker" and find_vendor(str(name)):
                    yield _report_unknown_device(path, index, part, str(name), value), True
                if not amount or _is_equal(value, amount):
                    continue
                at = child_path(f"{path}.podTemplate.spec.containers[{index}].resources.{part}", str(name))
                message = f"differs from {path}.{field} {amount}, which Ray and the validation use"
                fix = f"remove it, and set {path}.{field}"
                involved = (f"{path}.{field}",)
                shown = printable(str(value))
                finding = Finding(at, shown, message, fix, rule=RULE, involved=involved, edits=remove(at))
                is_certain = field == COUNT or _is_inverted(resources, str(name), amount)
                yield finding, value is not None and is_certain


def _report_unknown_device(path: str, index: int, part: str, name: str, value: object) -> Finding:
    at = child_path(f"{path}.podTemplate.spec.containers[{index}].resources.{part}", name)
    message = f"is not the accelerator of the group, and Ray gets no {name}"
    fix = f"remove it, and use {path}.accelerator: resourceName {name}, count {printable(str(value))}"
    return Finding(at, printable(str(value)), message, fix, rule=RULE, involved=(f"{path}.accelerator",))


def _is_inverted(resources: Mapping[str, Any], name: str, amount: str) -> bool:
    """Whether the limit is below the request, of which the podTemplate may give one. The API server rejects the pod."""
    values = []
    for part in ("limits", "requests"):
        given = resources.get(part)
        value = str(given.get(name, amount)) if isinstance(given, Mapping) else amount
        if not re.fullmatch(QUANTITY, value):
            return False
        values.append(quantity_value(value))
    return values[0] < values[1]


def _is_equal(value: object, amount: str) -> bool:
    """Whether a value of a pod template is the amount. False for null and for values that are not quantities."""
    text = str(value)
    return re.fullmatch(QUANTITY, text) is not None and quantity_value(text) == quantity_value(amount)


def _check_template(template: Mapping[str, Any], path: str, kind: str) -> Iterator[tuple[Finding, bool]]:
    yield from find_type_mistakes(template, schema.TEMPLATE, path)
    pod = template.get("spec")
    if not isinstance(pod, Mapping):
        return
    path = f"{path}.spec"
    for group in ("containers", "initContainers"):
        containers = pod.get(group)
        for index, container in enumerate(containers if isinstance(containers, list) else []):
            if isinstance(container, Mapping):
                yield from _check_name(container, f"{path}.{group}[{index}].name", NAMES[kind])
    yield from ((finding, True) for finding in list_mounts_without_volume(pod, [RESERVED_VOLUMES.pattern], path))


def _check_name(container: Mapping[str, Any], field: str, own: str) -> Iterator[tuple[Finding, bool]]:
    name = container.get("name")
    if not isinstance(name, str) or not name:
        message = f"is required: {own} is the container of the operator, another name adds a container"
        shown = printable(str(name or "none"))
        yield Finding(field, shown, message, f"use {own}", rule=RULE, edits=use(field, own)), True
        return
    is_without_image = not container.get("image")
    meant = find_nearest_word(name, [own], max_distance=2)
    if name in NAMES.values() and name != own:
        message = "is not in these pods: it would be added as a second container"
        yield Finding(field, name, message, f"use {own}", rule=RULE, edits=use(field, own)), is_without_image
    elif name != own and is_without_image and ".containers[" in field:
        message = f"is another container than the operator's {own}, and has no image"
        fix = f"did you mean {own}?" if meant else f"use {own}, or add its image"
        yield Finding(field, name, message, fix, rule=RULE, edits=use(field, own)), True


RULES = (validate_template_shape,)
