"""The placement of workers: labels for schedulers and queues, affinities, tolerations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import Toleration
from rlt_api.blocks.scheduling import Topology
from rlt_api.rules.queues import GANG_LABEL_SCHEDULERS, QUEUE_LABELS
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.overlay import merge_overlay
from rlt_core.fabric.aliases import CLIQUE_LABEL
from rlt_core.job import Job, Manifest

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
"""Path of the required node affinity terms in a pod template."""


def build_scheduling_labels(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    """Build the labels of the RayCluster with queue, priority and gang, for Kueue or for the scheduler.

    KubeRay passes them to the scheduler that its batchScheduler names (controllers/ray/batchscheduler, KubeRay 1.6.2).
    """
    scheduling = spec.scheduling
    if job.queue:
        return {names.QUEUE_LABEL: job.queue}
    scheduler = scheduling.scheduler_name or ""
    labels = dict[str, str]()
    if (key := QUEUE_LABELS.get(scheduler)) and scheduling.queue_name:
        labels[key] = scheduling.queue_name
    if scheduler == "yunikorn":
        labels["yunikorn.apache.org/app-id"] = job.uid
    if scheduler == "volcano" and scheduling.priority_class_name:
        labels["ray.io/priority-class-name"] = scheduling.priority_class_name
    if scheduling.gang and scheduler in GANG_LABEL_SCHEDULERS:
        labels["ray.io/gang-scheduling-enabled"] = "true"
    return labels


def build_placement_overlay(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    """Build the part of the group's pod template that places its pods."""
    spread = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {names.JOB_LABEL: job.name, names.RAY_GROUP_LABEL: group.name}},
    }
    affinity = _build_affinity(job, spec)
    pod: Manifest = {"topologySpreadConstraints": [spread]}
    if affinity:
        pod["affinity"] = affinity
    return merge_overlay({"spec": pod}, build_accelerator_overlay(group))


def build_accelerator_overlay(group: WorkerGroup) -> Manifest:
    """Build the toleration of the accelerators' taint, as the ExtendedResourceToleration admission plugin does."""
    if group.accelerator is None:
        return {}
    taint = group.accelerator.resource_name
    return {"spec": {"tolerations": [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}]}}


def _build_affinity(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Pod affinity between the workers. The first worker is not restricted, because its own labels match the term."""
    topology = spec.scheduling.topology
    if topology is None and job.status.network and job.status.network.attach.compute_domain:
        topology = Topology(key=CLIQUE_LABEL, mode="preferred")  # NVLink connects the nodes of one clique
    if topology is None:
        return {}
    workers = {"matchLabels": {names.JOB_LABEL: job.name, "ray.io/node-type": "worker"}}
    term = {"topologyKey": topology.key, "labelSelector": workers}
    if topology.mode == "required":
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def exclude_nodes(nodes: Sequence[str], template: Manifest) -> Manifest:
    """Exclude the nodes from the pod template, in each of its node affinity terms, which are alternatives.

    A field selector has exactly one value: ValidateNodeFieldSelectorRequirement, kubernetes pkg/apis/core/validation.
    """
    if not nodes:
        return template
    terms: Any = template
    for key in REQUIRED:
        terms = terms.get(key) if isinstance(terms, Mapping) else None
    user_terms = [term for term in terms if isinstance(term, Mapping)] if isinstance(terms, list) else []
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    affinity: Any = [{**term, "matchFields": [*term.get("matchFields", []), *excluded]} for term in user_terms or [{}]]
    for key in reversed(REQUIRED):
        affinity = {key: affinity}
    return merge_overlay(template, affinity)


def build_tolerations(tolerations: Sequence[Toleration]) -> list[Manifest]:
    """Build the tolerations of a pod. One without a key tolerates everything."""
    manifests = [(each, each.to_json()) for each in tolerations]
    return [manifest if each.key else manifest | {"operator": "Exists"} for each, manifest in manifests]
