"""Where workers go, and who decides: labels for schedulers and queues, affinities, tolerations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.rules.queues import GANG_LABEL_SCHEDULERS, QUEUE_LABELS
from rlt_api.spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.overlay import merge_overlay
from rlt_core.job import Job, Manifest

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
"""Where a pod template says which nodes it may have."""


def build_scheduling_labels(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    """Labels of the RayCluster by which Kueue, or the scheduler by way of KubeRay, knows queue, priority and gang.

    KubeRay passes them on if it runs with that batchScheduler (controllers/ray/batchscheduler, KubeRay 1.6.2).
    """
    scheduling = spec.scheduling
    if job.queue:
        return {names.QUEUE_LABEL: job.queue}
    scheduler, labels = scheduling.scheduler_name or "", dict[str, str]()
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
    """A part of the group's pod template, to be laid over the rest."""
    spread = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {names.JOB_LABEL: job.name, "ray.io/group": group.name}},
    }
    affinity = _build_affinity(job, spec)
    pod: Manifest = {"topologySpreadConstraints": [spread]}
    if affinity:
        pod["affinity"] = affinity
    if group.accelerator:  # what the ExtendedResourceToleration admission plugin adds, where it is on
        taint = group.accelerator.resource_name
        pod["tolerations"] = [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}]
    return {"spec": pod}


def _build_affinity(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Workers near each other. (The first of them goes anywhere: its own labels fit the term.)"""
    topology = spec.scheduling.topology
    if topology is None:
        return {}
    workers = {"matchLabels": {names.JOB_LABEL: job.name, "ray.io/node-type": "worker"}}
    term = {"topologyKey": topology.key, "labelSelector": workers}
    if topology.mode == "required":
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def exclude_nodes(nodes: Sequence[str], template: Manifest) -> Manifest:
    """The pod template, kept off these nodes whatever else it asks of its node: its own terms are alternatives.

    A field selector takes one value each: ValidateNodeFieldSelectorRequirement, kubernetes pkg/apis/core/validation.
    """
    if not nodes:
        return template
    terms: Any = template
    for key in REQUIRED:
        terms = terms.get(key) if isinstance(terms, Mapping) else None
    own = [term for term in terms if isinstance(term, Mapping)] if isinstance(terms, list) else []
    names = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    placed: Any = [{**term, "matchFields": [*term.get("matchFields", []), *names]} for term in own or [{}]]
    for key in reversed(REQUIRED):
        placed = {key: placed}
    return merge_overlay(template, placed)
