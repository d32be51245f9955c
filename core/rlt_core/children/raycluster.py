"""The RayCluster (ray.io/v1): a head without training work, and worker groups. Only the number of pods in a group with
maxReplicas changes later (rlt_operator.scaling).

KubeRay adds `ray start`, probes and the init container that waits for the head (pod.go, KubeRay 1.6.2). Only Kueue sets
spec.suspend.
"""

from __future__ import annotations

import json

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_api.model import quantity_value
from rlt_api.rules.shared_memory import size_shared_memory
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import ROLLOUT_RESOURCE, TRAIN_RESOURCE
from rlt_core import names
from rlt_core.children.attachment import choose_host_ports, get_attachment
from rlt_core.children.ownership import build_metadata
from rlt_core.children.placement import build_scheduling_labels
from rlt_core.children.pod_template import build_head_template, build_worker_template
from rlt_core.children.programs import name_programs
from rlt_core.job import Job, Manifest


def build_ray_cluster(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the RayCluster of the job."""
    metadata = build_metadata(job, names.ray_cluster(job.name))
    metadata["labels"] |= {**build_scheduling_labels(job, spec), names.PROGRAMS_LABEL: name_programs()}
    if job.queue and any(group.max_replicas for group in spec.cluster.workers):
        metadata["annotations"] = {names.ELASTIC_JOB: "true"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {
            "rayVersion": spec.cluster.ray_version,
            "enableInTreeAutoscaling": False,
            "headGroupSpec": _build_head_group(job, spec),
            "workerGroupSpecs": [_build_worker_group(job, spec, group) for group in spec.cluster.workers],
        },
    }


def _build_head_group(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    return {
        "rayStartParams": {
            "dashboard-host": "0.0.0.0",
            "num-cpus": "0",  # the head runs only the driver, no task or actor
            "num-gpus": "0",
            "no-monitor": "true",  # Ray's autoscaler would remove idle workers
            "object-store-memory": str(size_shared_memory(spec.cluster.head.resources).object_store),
            **_build_debugger_params(spec),
        },
        "template": build_head_template(job, spec),
    }


def _build_role_resource(spec: RLTrainingJobSpec, group: WorkerGroup) -> dict[str, str]:
    """In rollout.mode separate: the custom resource that distinguishes train workers from rollout workers in Ray."""
    generating = find_replaceable_group(spec)
    if generating is None:
        return {}
    resource = ROLLOUT_RESOURCE if group is generating else TRAIN_RESOURCE
    return {"resources": f"'{json.dumps({resource: 1})}'"}  # quoted for the shell that runs `ray start`


def _build_worker_group(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    assert group.resources
    start = {
        "num-cpus": str(group.num_cpus or max(1, int(quantity_value(group.resources.cpu)))),
        "object-store-memory": str(size_shared_memory(group.resources).object_store),
        **_build_role_resource(spec, group),
        **{name: str(port) for name, port in choose_host_ports(job, get_attachment(job, spec, group)).items()},
        **_build_debugger_params(spec),
    }
    if group.accelerator is None:
        start["num-gpus"] = "0"  # Ray must not count devices that the container runtime exposes
    return {
        "groupName": group.name,
        "replicas": group.replicas,
        "minReplicas": group.min_replicas if group.max_replicas else group.replicas,
        "maxReplicas": group.max_replicas or group.replicas,
        "rayStartParams": start,
        "template": build_worker_template(job, spec, group),
    }


def _build_debugger_params(spec: RLTrainingJobSpec) -> dict[str, str]:
    """`ray debug` reaches breakpoints in other pods only if each Ray node allows external connections."""
    return {"ray-debugger-external": "true"} if spec.observability.debugger == "legacy" else {}
