"""Pod templates of other resources as the head or a worker group of a job.

What has a field goes there. What a pod template of the job can express goes to podTemplate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.environment import apply_environment
from rlt.convert.reader import Json, Reader, show
from rlt.convert.text import SECRET
from rlt_api.rules.environment import RESERVED_NAMES
from rlt_api.rules.pod_templates import RESERVED_VOLUMES

POD_FIELDS = (
    "affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases",
    "hostIPC", "hostPID", "hostUsers", "initContainers", "nodeName", "preemptionPolicy", "priority",
    "resourceClaims", "runtimeClassName", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace",
    "topologySpreadConstraints",
)  # fmt: skip
"""Fields of a pod that podTemplate has, and no field of a job."""
CONTAINER_FIELDS = ("envFrom", "stdin", "tty", "volumeDevices")
"""The same for a container."""
OPERATORS = "the operator sets it"
NODE = ("affinity", "initContainers", "nodeName", "resourceClaims", "topologySpreadConstraints")
"""Fields of a pod that follow from its node and devices."""
ACCELERATOR = re.compile(r"[^/]*/(gpu(\.shared|-.*)?|rocm|npu|mig-.*|tpu|gaudi|neuron|i915|xe|Ascend\w*)")
"""Resources of device plugins for accelerators."""
LOCAL = re.compile(r"ephemeral-storage|hugepages-.*")
TOLERATION = ("key", "operator", "value", "effect")
TOPOLOGIES = {
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
}
"""Annotation with the label of a topology level -> spec.scheduling.topology.mode."""


@dataclass
class Pod:
    """A pod template of the source."""

    fields: Json = field(default_factory=dict)
    """The fields of cluster.head and of a worker group."""
    metadata: Json = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    """The part that only podTemplate has."""
    container: Json = field(default_factory=dict)
    """The part of the first container that only podTemplate has."""
    sidecars: list[Any] = field(default_factory=list)
    command: list[Any] = field(default_factory=list)
    """The program and its arguments."""

    def build(self, container: str) -> Json:
        """The fields of cluster.head (container ray-head) or of a worker group (ray-worker)."""
        spec = dict(self.spec)
        own = [{"name": container, **self.container}] if self.container else []
        if own or self.sidecars:
            spec["containers"] = [*own, *self.sidecars]
        parts = {"metadata": self.metadata, "spec": spec}
        template = {key: value for key, value in parts.items() if value}
        return {**self.fields, **({"podTemplate": template} if template else {})}

    def build_head(self) -> Json:
        """The fields of a head that runs the program of this pod: its volumes, variables and users."""
        spec = {key: value for key, value in self.spec.items() if key not in NODE}
        container = {key: value for key, value in self.container.items() if key != "resources"}
        return Pod(metadata=self.metadata, spec=spec, container=container).build("ray-head")


def read_pod(draft: Draft, template: Reader) -> Pod:
    """Read a pod template (metadata, spec)."""
    pod = Pod()
    _read_metadata(draft, pod, template.child("metadata"))
    spec = template.child("spec")
    template.leave_rest()
    _read_placement(draft, pod, spec)
    _read_users(draft, pod, spec.child("securityContext"))
    containers = spec.children("containers")
    volumes = spec.children("volumes")
    for key in POD_FIELDS:
        if (value := spec.take(key)) not in (None, {}, []):
            pod.spec[key] = value
    spec.leave(("restartPolicy", "activeDeadlineSeconds"), "KubeRay replaces pods, and failurePolicy restarts the job")
    spec.leave_rest("add it to podTemplate.spec if the job needs it")
    shared = _read_volumes(pod, volumes)
    if containers:
        read_container(draft, pod, containers[0], shared)
    pod.sidecars += [each.left for each in containers[1:]]
    return pod


def read_container(draft: Draft, pod: Pod, container: Reader, shared: dict[str, Any] | None = None) -> None:
    """Read the container of the program. `shared`: the size of each volume in memory, or None."""
    if name := container.take("name"):
        container.name("name", name, OPERATORS)
    _take_image(draft, pod, container)
    apply_env(draft, container.children("env"), pod)
    _read_mounts(pod, container, shared or {})
    _read_resources(pod, container.child("resources"))
    _read_privileges(draft, pod, container.child("securityContext"))
    for key in CONTAINER_FIELDS:
        if (value := container.take(key)) not in (None, {}, []):
            pod.container[key] = value
    pod.command = [*container.take_list("command"), *container.take_list("args")]
    if directory := container.take("workingDir"):
        pod.container["workingDir"] = directory
    container.leave(("ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"), OPERATORS)
    container.leave_rest("add it to the container of podTemplate if the job needs it")


def apply_env(draft: Draft, env: list[Reader], pod: Pod) -> None:
    """Environment variables of a container. Those that another pod has with another value, and references to fields
    of the pod, are variables of its podTemplate."""
    for each in env:
        name = str(each.take("name", ""))
        if name in RESERVED_NAMES:
            each.name(name, each.left, RESERVED_NAMES[name])
            continue
        source = each.child("valueFrom")
        value = each.take("value")
        each.leave_rest()
        known = {other["name"]: other for other in draft.get("cluster.env") or []}
        kinds = [kind for kind in ("secretKeyRef", "configMapKeyRef") if kind in source.left]
        if kinds:
            reference = source.child(kinds[0])
            kept = {key: reference.take(key) for key in ("name", "key")}
            reference.leave_rest("a job needs the key")
            variable: Json = {"name": name, kinds[0]: kept}
        elif source.left:
            variable = {"name": name, "valueFrom": {key: source.take(key) for key in tuple(source.left)}}
        elif SECRET.search(name) or "$(" not in str(value):
            lines = {name: draft.find_line(each.path) or 0}
            text = "" if value is None else value if isinstance(value, str) else show(value)
            if known.get(name, {"value": text}).get("value") == text:
                apply_environment(draft, {name: text}, lines)
                continue
            variable = {"name": name, "value": text}
        else:
            variable = {"name": name, "value": value}
        if "valueFrom" in variable or "$(" in str(variable.get("value")) or known.get(name, variable) != variable:
            pod.container.setdefault("env", []).append(variable)
        elif name not in known:
            draft.put("cluster.env", [*known.values(), variable])
        source.leave_rest()


def _read_metadata(draft: Draft, pod: Pod, metadata: Reader) -> None:
    annotations = metadata.child("annotations")
    for key, mode in TOPOLOGIES.items():
        if label := annotations.take(key):
            topology = {"key": label, "mode": mode}
            if draft.get("scheduling.topology") in (None, topology):
                draft.put("scheduling.topology", topology)
            else:
                annotations.name(key, label, "a job has one topology")
    labels = metadata.child("labels")
    for part, reader in (("labels", labels), ("annotations", annotations)):
        own = tuple(key for key in reader.left if re.search(r"(^|\.)ray\.io/|kueue\.x-k8s\.io/", str(key)))
        reader.leave(own, "KubeRay or Kueue sets it")
        if reader.left:
            pod.metadata[part] = reader.left
    metadata.leave_rest(OPERATORS)


def _read_placement(draft: Draft, pod: Pod, spec: Reader) -> None:
    if selector := spec.take("nodeSelector"):
        pod.fields["nodeSelector"] = selector
    tolerations = []
    for each in spec.children("tolerations"):
        kept = {key: each.take(key) for key in TOLERATION if each.left.get(key) is not None}
        each.leave_rest("a toleration of a job has no such field")
        tolerations.append(kept)
    if tolerations:
        pod.fields["tolerations"] = tolerations
    secrets = [each.take("name") for each in spec.children("imagePullSecrets")]
    known = draft.get("cluster.imagePullSecrets") or []
    if added := [each for each in secrets if each and each not in known]:
        draft.put("cluster.imagePullSecrets", [*known, *added])
    spec.move("schedulerName", "scheduling.schedulerName")
    spec.move("priorityClassName", "scheduling.priorityClassName")
    if spec.left.get("terminationGracePeriodSeconds") == 0:
        spec.leave(("terminationGracePeriodSeconds",), "the program of a job gets at least 1 second")
    spec.move("terminationGracePeriodSeconds", "cluster.terminationGracePeriodSeconds")
    if spec.take("hostNetwork"):
        draft.put("network.attach", "hostNetwork")


def _read_users(draft: Draft, pod: Pod, context: Reader) -> None:
    for key in ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"):
        if context.left.get(key) == 0:
            context.leave((key,), "a job does not run as root: use an image whose program runs as another user")
        context.move(key, f"security.{key}")
    _take_profile(draft, context)
    if context.left:
        pod.spec["securityContext"] = context.left


def _read_privileges(draft: Draft, pod: Pod, context: Reader) -> None:
    """The security context of a container: its privileges as fields of spec.security."""
    if context.take("privileged"):
        draft.put("security.privileged", True)
    for key in ("runAsUser", "runAsGroup"):
        if context.left.get(key) == 0:
            context.leave((key,), "a job does not run as root: use an image whose program runs as another user")
        context.move(key, f"security.{key}")
    _take_profile(draft, context)
    capabilities = context.child("capabilities")
    others = []
    for name in capabilities.take_list("add"):
        if name in ("IPC_LOCK", "SYS_PTRACE"):
            draft.put("security.ipcLock" if name == "IPC_LOCK" else "security.ptrace", True)
        else:
            others.append(name)
    if others:
        capabilities.left["add"] = others
    if capabilities.left:
        context.left["capabilities"] = capabilities.left
    if context.left:
        pod.container["securityContext"] = context.left


def _take_profile(draft: Draft, context: Reader) -> None:
    if context.left.get("seccompProfile") == {"type": "Unconfined"}:
        context.take("seccompProfile")
        draft.put("security.unconfined", True)


def _take_image(draft: Draft, pod: Pod, container: Reader) -> None:
    for key in ("image", "imagePullPolicy"):
        value = container.take(key)
        if value and draft.get(f"cluster.{key}") in (None, value):
            draft.put(f"cluster.{key}", value)
        elif value:
            pod.container[key] = value


def _read_volumes(pod: Pod, volumes: list[Reader]) -> dict[str, Any]:
    """Add the volumes to podTemplate. Return the size of those in memory by name."""
    shared = {}
    for each in volumes:
        directory = each.left.get("emptyDir")
        name = str(each.left.get("name"))
        if isinstance(directory, dict) and directory.get("medium") == "Memory":
            shared[name] = directory
        if RESERVED_VOLUMES.fullmatch(name):
            each.left["name"] = f"source-{name}"
        pod.spec.setdefault("volumes", []).append(each.left)
    return shared


def _read_mounts(pod: Pod, container: Reader, shared: dict[str, Any]) -> None:
    """The mounts. A mount at /dev/shm gives the size of the operator's volume there."""
    mounts = []
    for mount in container.children("volumeMounts"):
        name = str(mount.left.get("name"))
        kept = f"source-{name}" if RESERVED_VOLUMES.fullmatch(name) else name
        if str(mount.left.get("mountPath")).rstrip("/") == "/dev/shm":
            _take_shared_memory(pod, mount, kept, shared.get(name))
        else:
            mounts.append({**mount.left, "name": kept})
    if mounts:
        pod.container["volumeMounts"] = mounts


def _take_shared_memory(pod: Pod, mount: Reader, name: str, directory: Json | None) -> None:
    volumes = pod.spec.get("volumes", [])
    volume = next((each for each in volumes if each.get("name") == name), None)
    if volume:
        volumes.remove(volume)
    if not volumes:
        pod.spec.pop("volumes", None)
    size = (directory or {}).get("sizeLimit")
    if size:
        pod.fields.setdefault("resources", {})["sharedMemory"] = str(size)
    else:
        mount.name("mountPath", {"mount": mount.left, "volume": volume}, "set resources.sharedMemory: /dev/shm's size")


def _read_resources(pod: Pod, resources: Reader) -> None:
    """CPU, memory and devices: the limits, otherwise the requests."""
    requests = resources.child("requests")
    limits = resources.child("limits")
    for key in ("cpu", "memory"):
        given = [reader.left.get(key) for reader in (limits, requests) if reader.left.get(key) is not None]
        if given:
            pod.fields.setdefault("resources", {})[key] = str(given[0])
        if len(given) > 1 and given[0] != given[1]:
            requests.name(key, given[1], "the requests of a job equal its limits")
    for reader in (limits, requests):
        reader.left = {key: value for key, value in reader.left.items() if key not in ("cpu", "memory")}
        for name in [key for key in reader.left if ACCELERATOR.fullmatch(str(key))]:
            _take_accelerator(pod, reader, name)
        local = {key: reader.take(key) for key in tuple(reader.left) if LOCAL.fullmatch(str(key))}
        if local:
            part = reader.path.rpartition(".")[2]
            pod.container.setdefault("resources", {})[part] = local
        reader.leave_rest("the network profile requests devices of the fabric")
    if claims := resources.take("claims"):
        pod.container.setdefault("resources", {})["claims"] = claims
    resources.leave_rest()


def _take_accelerator(pod: Pod, reader: Reader, name: str) -> None:
    count = reader.take(name)
    if str(count) == "0":
        reader.name(name, str(count), "the pod has none")
        return
    accelerator = {"resourceName": name, "count": int(count) if str(count).isdigit() else count}
    known = pod.fields.setdefault("accelerator", accelerator)
    if known != accelerator:
        reader.name(name, count, f"a pod has one kind of accelerator: {show(known)}")
