"""The form of podTemplates: fields that a pod template has, names of containers, and amounts of resources.

KubeRay drops other fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.blocks.resources import Accelerator, Resources
from rlt_api.findings.finding import Edit, Finding, child_path, printable, use
from rlt_api.model import QUANTITY, quantity_value
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.structure import report_unknown_field

TEMPLATE_FIELDS = ("metadata", "spec")
POD_FIELDS = (
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
    "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
    "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
    "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
    "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext", "serviceAccount",
    "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds",
    "tolerations", "topologySpreadConstraints", "volumes", "workloadRef",
)  # fmt: skip
"""The fields of PodSpec (core/v1, Kubernetes 1.35)."""
CONTAINER_FIELDS = (
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "ports",
    "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules", "securityContext",
    "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty",
    "volumeDevices", "volumeMounts", "workingDir",
)  # fmt: skip
"""The fields of Container (core/v1, Kubernetes 1.35)."""
LISTS = ("containers", "imagePullSecrets", "initContainers", "resourceClaims", "tolerations", "volumes")
NUMBERS = ("activeDeadlineSeconds", "priority", "terminationGracePeriodSeconds")
FLAGS = ("automountServiceAccountToken", "hostIPC", "hostNetwork", "hostPID", "shareProcessNamespace")
RULE = "pod-template-shape"
NAMES = {"head": "ray-head", "worker": "ray-worker"}
"""Kind of pod -> the name of the operator's container in it."""


def find_template_mistakes(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Yield what is not a field of a pod template, or has another type, containers of other pods, and amounts of
    resources that differ from the fields."""
    head = spec.cluster.head
    yield from _validate_template(head.pod_template, "spec.cluster.head.podTemplate", "head")
    yield from _compare_amounts(head.pod_template, "spec.cluster.head", "head", _list_amounts(head.resources))
    for index, group in enumerate(spec.cluster.workers):
        path = f"spec.cluster.workers[{index}]"
        yield from _validate_template(group.pod_template, f"{path}.podTemplate", "worker")
        yield from _compare_amounts(
            group.pod_template, path, "worker", _list_amounts(group.resources, group.accelerator)
        )


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
) -> Iterator[Finding]:
    """Requests and limits of the operator's container that differ from the fields, which Ray's resources, /dev/shm and
    the validation of the memory follow."""
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
                if not amount or _is_equal(value, amount):
                    continue
                at = child_path(f"{path}.podTemplate.spec.containers[{index}].resources.{part}", str(name))
                message = f"differs from {path}.{field} {amount}, which Ray and the validation use"
                yield Finding(at, printable(str(value)), message, f"remove it, and set {path}.{field}", rule=RULE)


def _is_equal(value: object, amount: str) -> bool:
    """Whether a value of a pod template is the amount. False for null and for values that are not quantities."""
    text = str(value)
    return re.fullmatch(QUANTITY, text) is not None and quantity_value(text) == quantity_value(amount)


def _validate_template(template: Mapping[str, Any], path: str, kind: str) -> Iterator[Finding]:
    yield from _find_unknown(template, TEMPLATE_FIELDS, path)
    pod = template.get("spec")
    path = f"{path}.spec"
    if pod is None:
        return
    if not isinstance(pod, Mapping):
        yield Finding(path, printable(str(pod)), "must be an object", "write the fields of a pod below it", rule=RULE)
        return
    yield from _find_unknown(pod, POD_FIELDS, path)
    for names, types, what in ((LISTS, list, "a list"), (NUMBERS, int, "an integer"), (FLAGS, bool, "true or false")):
        for name in names:
            value = pod.get(name)
            if value is None or (isinstance(value, types) and isinstance(value, bool) == (types is bool)):
                continue
            field = f"{path}.{name}"
            fix = f"use {what}"
            edits = tuple[Edit, ...]()
            if types is int and isinstance(value, str) and value.isdecimal():
                fix = f"write {value} without quotes"
                edits = use(field, int(value))
            yield Finding(field, printable(str(value)), f"must be {what}", fix, rule=RULE, edits=edits)
    for group in ("containers", "initContainers"):
        containers = pod.get(group)
        for index, container in enumerate(containers if isinstance(containers, list) else []):
            yield from _validate_container(container, f"{path}.{group}[{index}]", NAMES[kind])


def _validate_container(container: object, path: str, own: str) -> Iterator[Finding]:
    if not isinstance(container, Mapping):
        yield Finding(
            path, printable(str(container)), "must be an object", "write the fields of a container", rule=RULE
        )
        return
    yield from _find_unknown(container, CONTAINER_FIELDS, path)
    name = container.get("name")
    field = f"{path}.name"
    if not isinstance(name, str) or not name:
        message = f"is required: {own} is the container of the operator, another name adds a container"
        yield Finding(field, printable(str(name or "none")), message, f"use {own}", rule=RULE, edits=use(field, own))
    elif name in NAMES.values() and name != own:
        message = "is not in these pods: it would be added as a second container"
        yield Finding(field, name, message, f"use {own}", rule=RULE, edits=use(field, own))


def _find_unknown(value: Mapping[str, Any], known: tuple[str, ...], path: str) -> Iterator[Finding]:
    for key in value:
        if key not in known:
            yield report_unknown_field(child_path(path, str(key)), str(key), list(known), rule=RULE)
