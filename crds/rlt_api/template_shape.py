"""The form of podTemplates: fields that a pod template has, and names of containers. KubeRay drops others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.finding import Edit, Finding, child_path, printable, use
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.structure import report_unknown_field

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
    """Yield what is not a field of a pod template, or has another type, and containers of other pods."""
    yield from _validate_template(spec.cluster.head.pod_template, "spec.cluster.head.podTemplate", "head")
    for index, group in enumerate(spec.cluster.workers):
        yield from _validate_template(group.pod_template, f"spec.cluster.workers[{index}].podTemplate", "worker")


def _validate_template(template: Mapping[str, Any], path: str, kind: str) -> Iterator[Finding]:
    yield from _find_unknown(template, TEMPLATE_FIELDS, path)
    pod, path = template.get("spec"), f"{path}.spec"
    if pod is None:
        return
    if not isinstance(pod, Mapping):
        yield Finding(path, printable(str(pod)), "must be an object", "write the fields of a pod below it", RULE)
        return
    yield from _find_unknown(pod, POD_FIELDS, path)
    for names, types, what in ((LISTS, list, "a list"), (NUMBERS, int, "an integer"), (FLAGS, bool, "true or false")):
        for name in names:
            value = pod.get(name)
            if value is None or (isinstance(value, types) and isinstance(value, bool) == (types is bool)):
                continue
            field, fix, edits = f"{path}.{name}", f"use {what}", tuple[Edit, ...]()
            if types is int and isinstance(value, str) and value.isdecimal():
                fix, edits = f"write {value} without quotes", use(field, int(value))
            yield Finding(field, printable(str(value)), f"must be {what}", fix, RULE, edits=edits)
    for group in ("containers", "initContainers"):
        containers = pod.get(group)
        for index, container in enumerate(containers if isinstance(containers, list) else []):
            yield from _validate_container(container, f"{path}.{group}[{index}]", NAMES[kind])


def _validate_container(container: object, path: str, own: str) -> Iterator[Finding]:
    if not isinstance(container, Mapping):
        yield Finding(path, printable(str(container)), "must be an object", "write the fields of a container", RULE)
        return
    yield from _find_unknown(container, CONTAINER_FIELDS, path)
    name, field = container.get("name"), f"{path}.name"
    if not isinstance(name, str) or not name:
        message = f"is required: {own} is the container of the operator, another name adds a container"
        yield Finding(field, printable(str(name or "none")), message, f"use {own}", RULE, edits=use(field, own))
    elif name in NAMES.values() and name != own:
        message = "is not in these pods: it would be added as a second container"
        yield Finding(field, name, message, f"use {own}", RULE, edits=use(field, own))


def _find_unknown(value: Mapping[str, Any], known: tuple[str, ...], path: str) -> Iterator[Finding]:
    for key in value:
        if key not in known:
            yield report_unknown_field(child_path(path, str(key)), str(key), list(known), rule=RULE)
