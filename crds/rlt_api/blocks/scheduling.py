"""spec.scheduling: queues, schedulers, priorities, topology."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from rlt_api.model import ApiModel, ObjectName

LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=316)]


class Topology(ApiModel):
    """Workers near each other."""

    key: LabelKey
    """The node label whose value must be alike, such as nvidia.com/gpu.clique or topology.kubernetes.io/rack."""
    mode: Literal["preferred", "required"] = "preferred"
    """required: workers wait rather than go elsewhere. preferred: elsewhere if need be."""


class Scheduling(ApiModel):
    """Queues, schedulers, priorities, topology."""

    queue_name: ObjectName | None = None
    """Kueue's LocalQueue: the label kueue.x-k8s.io/queue-name of the RayCluster. A label of that name on the job itself
    does the same, and wins. With schedulerName volcano, yunikorn or kai-scheduler: a queue of that scheduler."""
    scheduler_name: ObjectName | None = None
    """The scheduler of all pods. Default: the cluster's. KubeRay must run with the same batchScheduler."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of all pods. Default: the cluster's."""
    gang: bool = False
    """Whether the pods start all together or not at all: by Kueue, volcano, kai-scheduler, yunikorn or
    scheduler-plugins-scheduler."""
    topology: Topology | None = None
    """Workers near each other. Default: spread over nodes, wherever they are."""
