"""The pod templates of the Ray cluster: the operator's part, with the user's podTemplate merged into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import Accelerator, Resources, Toleration
from rlt_api.blocks.storage import Storage
from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_api.rules.shared_memory import size_shared_memory, size_worker_shared_memory
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import find_mount, list_images
from rlt_api.spec.training_config import CONFIG_DIRECTORY, PROGRAMS_PATH
from rlt_api.status.network import NetworkAttachment, NetworkStatus
from rlt_core import names
from rlt_core.children.attachment import (
    build_attachment_overlay,
    build_group_overlay,
    choose_host_ports,
    get_attachment,
    get_network,
)
from rlt_core.children.config_map import build_config_volume
from rlt_core.children.environment import build_env
from rlt_core.children.function_files import build_function_mounts, build_function_volumes
from rlt_core.children.gang import build_gang_reference
from rlt_core.children.overlay import merge_overlay
from rlt_core.children.placement import (
    build_accelerator_overlay,
    build_placement_overlay,
    build_tolerations,
    exclude_nodes,
)
from rlt_core.children.ray_token import build_ray_token_mounts, build_ray_token_volumes
from rlt_core.children.readiness import AGENT_PARAMETER, AGENT_PORT, build_readiness_probe
from rlt_core.job import Job, Manifest, list_excluded_nodes
from rlt_pod.report.driver_report import METRICS_PORT

GCS_PORT = 6379
"""Port of Ray's GCS on the head, which the workers connect to."""
HEAD_PORTS = {
    "gcs-server": GCS_PORT,
    "dashboard": names.DASHBOARD_PORT,
    "client": 10001,
    "metrics": names.RAY_METRICS_PORT,
    "rlt-metrics": METRICS_PORT,
}
"""Ports of the head. KubeRay adds all of them to the head service."""

SCRAPE_ANNOTATIONS = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(METRICS_PORT),
    "prometheus.io/path": "/metrics",
}

DISRUPTION_ANNOTATIONS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""The cluster autoscaler and Karpenter remove no node with a pod of a job: most pods end the whole program.
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md, https://karpenter.sh/docs/concepts/disruption/"""

NO_FABRIC = NetworkStatus(
    profile="none",
    fabric="none",
    vendor="none",
    agree=True,
    candidates=0,
    attach=NetworkAttachment(mode="podNetwork"),
)
"""The network of a pod that communicates with no other."""


@dataclass(frozen=True)
class TemplateDryRun:
    """A PodTemplate for a server-side dry run: the API server rejects it as it would reject the pods."""

    field: str
    """The user's field in the template."""
    manifest: Manifest


def build_head_template(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the pod template of the head."""
    head = spec.cluster.head
    container = _build_container(job, spec, "ray-head", head.resources) | {
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in HEAD_PORTS.items()],
        "lifecycle": {"preStop": _build_hook("pre-stop")},
        **build_readiness_probe(spec),
    }
    pod = _build_pod(
        job, spec, container, size_shared_memory(head.resources).size, head.node_selector, head.tolerations
    )
    scraping = SCRAPE_ANNOTATIONS if spec.observability.scrape_annotations else {}
    metadata = {"annotations": {**DISRUPTION_ANNOTATIONS, **scraping}}
    template = _merge_user_template(job, {"metadata": metadata, "spec": pod}, head.pod_template)
    return exclude_nodes(list_excluded_nodes(job), template)


def build_worker_template(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    """Build the pod template of a worker group."""
    assert group.resources
    attach = get_attachment(job, spec, group)
    port = choose_host_ports(job, attach).get(AGENT_PARAMETER, AGENT_PORT)
    container = _build_container(
        job, spec, "ray-worker", group.resources, group.accelerator, mounted=bool(attach.mounts), group=group
    ) | build_readiness_probe(spec, port)
    if group is find_replaceable_group(spec):
        container["lifecycle"] = {"preStop": _build_hook("keep-logs")}
    else:
        container["lifecycle"] = {"postStart": _build_hook("post-start"), "preStop": _build_hook("pre-stop")}
    pod = _build_pod(
        job, spec, container, size_worker_shared_memory(spec, group).size, group.node_selector, group.tolerations
    )
    metadata = {"annotations": dict(DISRUPTION_ANNOTATIONS)}
    template = merge_overlay({"metadata": metadata, "spec": pod}, build_placement_overlay(job, spec, group))
    template = _merge_user_template(
        job, merge_overlay(template, build_attachment_overlay(job, spec, group)), group.pod_template
    )
    return exclude_nodes(get_network(job).excluded_nodes, template)


def build_program_template(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup | None) -> Manifest:
    """Build the pod template of one program on a node like `group`'s nodes, or like the head's.

    The pod has one accelerator of the group with the groups that may open it, and no devices, host network or variables
    of the fabric: variables that name interfaces of the host are invalid in the network of a pod.
    """
    groups = {"spec": build_group_overlay(spec, get_attachment(job, spec, group)) if group else {}}
    job = replace(job, status=job.status.model_copy(update={"network": NO_FABRIC}))
    head = spec.cluster.head
    place = group or spec.cluster.head
    if group:
        assert group.resources
        accelerator = group.accelerator.model_copy(update={"count": 1}) if group.accelerator else None
        container = _build_container(job, spec, "ray-worker", group.resources, accelerator)
        shared = size_worker_shared_memory(spec, group).size
        overlay = build_accelerator_overlay(group)
    else:
        container = _build_container(job, spec, "ray-head", head.resources)
        shared = size_shared_memory(head.resources).size
        overlay = Manifest()
    pod = _build_pod(job, spec, container, shared, place.node_selector, place.tolerations)
    template = merge_overlay({"metadata": {"annotations": dict(DISRUPTION_ANNOTATIONS)}, "spec": pod}, overlay)
    template = merge_overlay(template, groups)
    return exclude_nodes(list_excluded_nodes(job), _merge_user_template(job, template, place.pod_template))


def build_template_dry_runs(job: Job, spec: RLTrainingJobSpec) -> tuple[TemplateDryRun, ...]:
    """Build a dry run for each template with a podTemplate of the user."""
    found = []
    if spec.cluster.head.pod_template:
        found.append(_build_template_dry_run(job, "spec.cluster.head.podTemplate", build_head_template(job, spec)))
    for index, group in enumerate(spec.cluster.workers):
        if group.pod_template:
            field = f"spec.cluster.workers[{index}].podTemplate"
            found.append(_build_template_dry_run(job, field, build_worker_template(job, spec, group)))
    return tuple(found)


def _build_template_dry_run(job: Job, field: str, template: Manifest) -> TemplateDryRun:
    metadata = {"generateName": f"{job.name}-", "namespace": job.namespace}
    return TemplateDryRun(
        field, {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template}
    )


def _merge_user_template(job: Job, template: Manifest, user_template: Mapping[str, Any]) -> Manifest:
    """Merge the user's podTemplate, which has precedence except for the labels that the operator selects pods by.

    A malformed podTemplate is kept, so that the API server rejects it.
    """
    merged = merge_overlay(template, user_template)
    metadata = merged.get("metadata", {})
    if isinstance(metadata, Mapping) and isinstance(metadata.get("labels", {}), Mapping):
        merged["metadata"] = merge_overlay(metadata, {"labels": names.labels(job.name)})
    pod = merged.get("spec", {})
    if isinstance(pod, Mapping) and pod.get("hostPID"):  # Kubernetes accepts one of them
        merged["spec"] = merge_overlay(pod, {"shareProcessNamespace": None})
    return merged


def _build_hook(name: str) -> Manifest:
    """Build a lifecycle hook. An image without python3 has no hooks: a failed postStart hook would restart it."""
    return {"exec": {"command": ["/bin/sh", "-c", f"python3 {PROGRAMS_PATH} hooks {name} || true"]}}


def _build_container(
    job: Job,
    spec: RLTrainingJobSpec,
    name: str,
    resources: Resources,
    accelerator: Accelerator | None = None,
    *,
    mounted: bool = False,
    group: WorkerGroup | None = None,
) -> Manifest:
    amounts = {"cpu": resources.cpu, "memory": resources.memory}
    if accelerator:
        amounts[accelerator.resource_name] = str(accelerator.count)
    mounts: list[Manifest] = [
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        {"name": "storage", "mountPath": names.mount_path(spec)},
        {"name": "training-config", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
    ]
    mounts += [*build_ray_token_mounts(spec), *build_function_mounts(spec)]
    if cache := spec.storage.model_cache:
        mounts.append({"name": "model-cache", "mountPath": cache.mount_path, "readOnly": cache.read_only})
    images = enumerate(list_images(spec))
    mounts += [{"name": f"model-{n}", "mountPath": find_mount(each), "readOnly": True} for n, each in images]
    return {
        "name": name,
        "image": spec.cluster.image,
        "imagePullPolicy": spec.cluster.image_pull_policy,
        "env": build_env(job, spec, mounted=mounted, group=group),
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the last log lines of a crash reach the job status
        "volumeMounts": mounts,
    }


def _build_pod(
    job: Job,
    spec: RLTrainingJobSpec,
    container: Manifest,
    shared_bytes: int,
    node_selector: Mapping[str, str],
    tolerations: Sequence[Toleration],
) -> Manifest:
    optional = {
        "imagePullSecrets": [{"name": name} for name in spec.cluster.image_pull_secrets],
        "nodeSelector": dict(node_selector),
        "tolerations": build_tolerations(tolerations),
        "schedulerName": spec.scheduling.scheduler_name,
        "priorityClassName": spec.scheduling.priority_class_name,
    }
    return {
        "automountServiceAccountToken": False,
        # As process 1, the shell of KubeRay's init container, and Ray while it starts, would ignore SIGTERM: the pod
        # would run until the end of its grace period.
        "shareProcessNamespace": True,
        "securityContext": build_security_context(spec),
        "terminationGracePeriodSeconds": spec.cluster.termination_grace_period_seconds,
        "containers": [container],
        "volumes": _build_volumes(job, spec, shared_bytes),
        **{name: value for name, value in optional.items() if value},
        **build_gang_reference(job, spec),
    }


def build_security_context(spec: RLTrainingJobSpec) -> Manifest:
    """Build the security context of a pod."""
    security = spec.security
    context: Manifest = {
        "runAsNonRoot": True,
        "runAsUser": security.run_as_user,
        "runAsGroup": security.run_as_group,
        "fsGroup": security.fs_group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "Unconfined" if security.unconfined else "RuntimeDefault"},
    }
    if security.supplemental_groups:
        context["supplementalGroups"] = list(security.supplemental_groups)
    return context


def _build_volumes(job: Job, spec: RLTrainingJobSpec, shared_bytes: int) -> list[Manifest]:
    storage = spec.storage
    volumes: list[Manifest] = [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": str(shared_bytes)}},
        {"name": "storage", **build_storage_source(job, storage)},
        {"name": "training-config", "projected": build_config_volume(job, spec)},
    ]
    volumes += [*build_ray_token_volumes(job, spec), *build_function_volumes(spec)]
    if cache := storage.model_cache:
        volumes.append({"name": "model-cache", **_build_pvc_source(cache.claim_name, read_only=cache.read_only)})
    for number, image in enumerate(list_images(spec)):
        source = {"reference": image, "pullPolicy": spec.cluster.image_pull_policy}
        volumes.append({"name": f"model-{number}", "image": source})
    return volumes


def build_storage_source(job: Job, storage: Storage) -> Manifest:
    """Build the source of the volume with the run directory."""
    if storage.storage_class_name:
        return _build_pvc_source(names.pvc(job.name))
    return _build_pvc_source(storage.claim_name) if storage.claim_name else {"emptyDir": {}}


def _build_pvc_source(name: str, *, read_only: bool = False) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name, **({"readOnly": True} if read_only else {})}}
