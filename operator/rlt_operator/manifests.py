"""The values of rlt_operator.observation from Kubernetes objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rlt_api.model import quantity_value
from rlt_core import names
from rlt_core.children.config_map import compute_hash, digest_data
from rlt_core.children.programs import has_named_content
from rlt_core.children.ray_token import find_ray_token_name
from rlt_core.fabric.demand import parse_toleration
from rlt_core.job import Manifest
from rlt_operator.observation import (
    Config,
    Container,
    GroupSize,
    KubeRayCondition,
    Pod,
    Programs,
    RayCluster,
    Termination,
    WarningEvent,
)


def parse_workload(manifest: Manifest) -> str | None:
    """Why Kueue does not admit a Workload: the message on the quota, else on its admission checks. None if it does, or
    if it has finished: an elastic RayCluster gets another Workload for more pods."""
    conditions = manifest.get("status", {}).get("conditions", [])
    if any(each["type"] == "Finished" and each["status"] == "True" for each in conditions):
        return None
    for each in conditions:
        if each["type"] in ("QuotaReserved", "Admitted") and each["status"] == "False":
            return str(each["message"])
    return None


def parse_ray_cluster(manifest: Manifest) -> RayCluster:
    """A RayCluster (ray.io/v1)."""
    status = manifest.get("status") or {}
    owner = _controller(manifest)
    conditions = status.get("conditions", [])
    resumed = next((c for c in conditions if c["type"] == "RayClusterSuspended" and c["status"] == "False"), None)
    return RayCluster(
        uid=manifest["metadata"]["uid"],
        owner_kind=owner.get("kind"),
        owner_uid=owner.get("uid"),
        created=datetime.fromisoformat(manifest["metadata"]["creationTimestamp"]),
        deleting="deletionTimestamp" in manifest["metadata"],
        has_status=bool(status),
        conditions=tuple(
            KubeRayCondition(condition["type"], condition.get("reason", ""), condition.get("message", ""))
            for condition in conditions
            if condition["status"] == "True"
        ),
        suspend=manifest.get("spec", {}).get("suspend"),
        resumed=datetime.fromisoformat(resumed["lastTransitionTime"]) if resumed else None,
        programs=manifest["metadata"].get("labels", {}).get(names.PROGRAMS_LABEL),
        head_pod=(status.get("head") or {}).get("podName") or None,
        devices=_count_devices(manifest.get("spec", {}).get("workerGroupSpecs") or []),
        groups=tuple(_parse_group(each) for each in manifest.get("spec", {}).get("workerGroupSpecs") or []),
        elastic=any(_has_gate(each) for each in manifest.get("spec", {}).get("workerGroupSpecs") or []),
    )


def _has_gate(group: Manifest) -> bool:
    return {"name": names.ELASTIC_JOB} in (group["template"].get("spec", {}).get("schedulingGates") or [])


def _parse_group(group: Manifest) -> GroupSize:
    deleting = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
    return GroupSize(group.get("groupName", ""), group.get("replicas", 1), tuple(deleting))


def _count_devices(groups: Iterable[Manifest]) -> tuple[tuple[str, int], ...]:
    """Extended resource and number of them in all workers of a RayCluster, ordered by name."""
    found: Counter[str] = Counter()
    for group in groups:
        workers = group.get("replicas", 1) * group.get("numOfHosts", 1)
        for container in group["template"]["spec"].get("containers", []):
            limits = container.get("resources", {}).get("limits", {})
            found.update({name: workers * int(quantity_value(str(limits[name]))) for name in limits if "/" in name})
    return tuple(sorted(found.items()))


def parse_pod(manifest: Manifest) -> Pod:
    """A pod that KubeRay created."""
    metadata = manifest["metadata"]
    status = manifest.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    ready = conditions.get("Ready", {})
    disruption = conditions.get("DisruptionTarget", {})
    owner = _controller(manifest)
    cluster = owner if owner.get("kind") == "RayCluster" else {}
    init = status.get("initContainerStatuses", [])
    main = status.get("containerStatuses", [])
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        cluster_uid=cluster.get("uid"),
        is_head=metadata.get("labels", {}).get("ray.io/node-type") == "head",
        group=metadata.get("labels", {}).get(names.RAY_GROUP_LABEL),
        deleting="deletionTimestamp" in metadata,
        phase=status.get("phase", "Pending"),
        ready=ready.get("status") == "True",
        unschedulable=scheduled.get("message", "no node was found") if scheduled.get("status") == "False" else None,
        message=status.get("message"),
        containers=(*(_container(each, is_init=True) for each in init), *(_container(each) for each in main)),
        node=manifest.get("spec", {}).get("nodeName"),
        ip=status.get("podIP"),
        reason=status.get("reason"),
        disruption=disruption.get("reason") if disruption.get("status") == "True" else None,
        cluster_name=cluster.get("name"),
        ray_token=find_ray_token_name(manifest),
        images=tuple(sorted({each["imageID"].rpartition("@")[2] for each in main if each.get("imageID")})),
        ready_since=_parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        tolerations=tuple(parse_toleration(each) for each in manifest.get("spec", {}).get("tolerations", [])),
        created=_parse_time(metadata.get("creationTimestamp")),
        scheduled=_parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
    )


def parse_warning(manifest: Manifest) -> WarningEvent:
    """A core/v1 Event."""
    return WarningEvent(
        object_uid=manifest.get("involvedObject", {}).get("uid", ""),
        reason=manifest.get("reason", ""),
        message=manifest.get("message", ""),
    )


def parse_config(manifest: Manifest) -> Config:
    """The ConfigMap of a job."""
    digests = digest_data(manifest.get("data") or {})
    written = manifest["metadata"].get("annotations", {}).get(names.HASH_ANNOTATION)
    return Config(digests, is_unchanged=written == compute_hash(digests))


def parse_programs(manifest: Manifest) -> Programs:
    """A ConfigMap with the programs for pods."""
    return Programs(manifest["metadata"]["uid"], has_named_content(manifest))


def _controller(manifest: Manifest) -> dict[str, str]:
    references = manifest["metadata"].get("ownerReferences", [])
    return next((reference for reference in references if reference.get("controller")), {})


def _container(status: Mapping[str, Any], *, is_init: bool = False) -> Container:
    waiting = status.get("state", {}).get("waiting") or {}
    running = status.get("state", {}).get("running")
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
    return Container(
        name=status["name"],
        waiting_reason=waiting.get("reason"),
        waiting_message=waiting.get("message"),
        termination=_termination(ended) if ended else None,
        restarts=status.get("restartCount", 0),
        running=running is not None,
        started=_parse_time((running or {}).get("startedAt")),
        is_init=is_init,
    )


def _termination(ended: Mapping[str, Any]) -> Termination:
    finished = _parse_time(ended.get("finishedAt"))
    return Termination(ended.get("reason", ""), ended["exitCode"], ended.get("message", ""), finished)


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
