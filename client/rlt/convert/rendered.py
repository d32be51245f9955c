"""The manifests that the operator created for a job, or `rlt render` printed, as that job.

The config of the trainer has all fields of the training, the pods those of the cluster. A preliminary job of these is
rendered again: variables, tolerations and sizes that it has as well are the operator's. What no manifest has is in
NOT_IN_MANIFESTS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rlt.convert.defaults import subtract_defaults
from rlt.convert.differences import add_differences, format_size
from rlt.convert.draft import ConvertError, Draft
from rlt_api.training_config import CONFIG_FILE
from rlt_core import names
from rlt_core.preflight.expected import EXPECTED_FILE

TRAINING_BLOCKS = ("model", "data", "rewards", "algorithm", "training", "rollout", "checkpoint", "observability")
"""Blocks of the spec that the trainer's config contains."""
Json = dict[str, Any]
OWN_LABELS = {"app.kubernetes.io/managed-by": "rlt-operator"}
GPU_SUFFIXES = ("/gpu", "/rocm", "/npu")
NOT_IN_MANIFESTS = (
    "framework", "failurePolicy", "network.profile", "activeDeadlineSeconds", "pendingDeadlineSeconds",
    "ttlSecondsAfterFinished", "suspend", "managedBy",
)  # fmt: skip
"""Fields that the operator carries out itself."""


def is_rendered(documents: Iterable[Json]) -> bool:
    """Whether a RayCluster of the operator is among the documents."""
    return any(
        each.get("kind") == "RayCluster" and OWN_LABELS.items() <= _get(each, "metadata", "labels").items()
        for each in documents
    )


def convert_rendered(documents: Sequence[Json]) -> Draft:
    """Convert the manifests of one job. Raises ConvertError for those of several, and others if parts are missing."""
    jobs = sum(each.get("kind") == "RayCluster" for each in documents)
    if jobs > 1:
        raise ConvertError(f"line 1: the manifests of {jobs} jobs: pass those of one.")
    by_kind = {str(each.get("kind")): each for each in documents}
    cluster, files = by_kind["RayCluster"], _get(by_kind.get("ConfigMap", {}), "data")
    draft = Draft(name=cluster["metadata"]["labels"][names.JOB_LABEL])
    if CONFIG_FILE in files:
        add_training(draft, json.loads(files[CONFIG_FILE]))
    else:
        draft.leave_out("the program", "no manifest has it: convert the output of rlt render --command")
    _read_cluster(draft, cluster)
    _read_pod(draft, cluster, by_kind.get("PersistentVolumeClaim"))
    if EXPECTED_FILE in files:
        _read_preflight(draft, json.loads(files[EXPECTED_FILE]))
    draft.spec = subtract_defaults(draft.spec)
    add_differences(draft, cluster)
    draft.leave_out(", ".join(f"spec.{field}" for field in NOT_IN_MANIFESTS), "no manifest has them: the operator acts")
    return draft


def add_training(draft: Draft, config: Json) -> None:
    """Set the blocks that the trainer's config contains."""
    draft.spec |= {block: config[block] for block in TRAINING_BLOCKS if config.get(block)}
    if not draft.get("training.totalSteps"):  # 0: the trainer computes it
        draft.spec["training"].pop("totalSteps", None)


def _read_cluster(draft: Draft, manifest: Json) -> None:
    """Groups, resources and labels."""
    spec = manifest["spec"]
    head = spec["headGroupSpec"]["template"]["spec"]
    (container, *_) = head["containers"]
    draft.put("cluster.image", container["image"])
    draft.put("cluster.imagePullPolicy", container.get("imagePullPolicy", "IfNotPresent"))
    draft.put("cluster.imagePullSecrets", [each["name"] for each in head.get("imagePullSecrets", [])])
    draft.put("cluster.rayVersion", spec["rayVersion"])
    draft.put("cluster.terminationGracePeriodSeconds", head["terminationGracePeriodSeconds"])
    draft.put("cluster.head", _read_group(head))
    draft.put("cluster.workers", [
        {"name": each["groupName"], "replicas": each["replicas"], **_read_group(each["template"]["spec"])}
        for each in spec["workerGroupSpecs"]
    ])  # fmt: skip


def _read_group(pod: Json) -> Json:
    limits = pod["containers"][0]["resources"]["limits"]
    group: Json = {
        "resources": {"cpu": limits["cpu"], "memory": limits["memory"]},
        "nodeSelector": pod.get("nodeSelector", {}),
    }
    for name, count in limits.items():
        if name.endswith(GPU_SUFFIXES):
            group["accelerator"] = {"resourceName": name, "count": int(count)}
    return group


def _read_pod(draft: Draft, manifest: Json, claim: Json | None) -> None:
    """Volumes, users and scheduling: equal in all pods."""
    pod = manifest["spec"]["headGroupSpec"]["template"]["spec"]
    volumes = {each["name"]: each.get("persistentVolumeClaim") for each in pod["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    storage: Json = {"mountPath": mounts["storage"]}
    if claim:
        spec = claim["spec"]
        size = spec["resources"]["requests"]["storage"]
        storage |= {"storageClassName": spec["storageClassName"], **({"size": size} if size else {})}
    elif volumes["storage"]:
        storage["claimName"] = volumes["storage"]["claimName"]
    if cache := volumes.get("model-cache"):
        storage["modelCache"] = {"claimName": cache["claimName"], "mountPath": mounts["model-cache"]}
        storage["modelCache"] |= {"readOnly": True} if cache.get("readOnly") else {}
    draft.put("storage", storage)
    context = pod["securityContext"]
    users = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups")
    draft.put("security", {key: context[key] for key in users if key in context})
    if _get(context, "seccompProfile").get("type") == "Unconfined":
        draft.put("security.unconfined", True)
    if _get(pod["containers"][0], "securityContext").get("privileged"):
        draft.put("security.privileged", True)
    scheduling = {key: pod[key] for key in ("schedulerName", "priorityClassName") if key in pod}
    if queue := manifest["metadata"]["labels"].get(names.QUEUE_LABEL):
        scheduling["queueName"] = queue
    draft.put("scheduling", scheduling)


def _read_preflight(draft: Draft, expected: Json) -> None:
    """The level of the checks, and what they compare with."""
    draft.put("preflight.level", expected["level"])
    if expected.get("min_bus_bandwidth"):
        draft.put("preflight.minBusBandwidth", expected["min_bus_bandwidth"] / 1e9)
    if expected["require_rdma"]:
        draft.put("network.require", "rdma")
    for group, checked in zip(draft.get("cluster.workers"), expected["workers"], strict=True):
        if memory := checked.get("device_memory"):
            group["accelerator"]["memory"] = format_size(memory)


def _get(manifest: Json, *path: str) -> Json:
    """The object at a path. Empty if it is missing."""
    for key in path:
        manifest = manifest.get(key) or {}
    return manifest
