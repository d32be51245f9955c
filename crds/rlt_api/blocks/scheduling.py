"""spec.scheduling: queues, schedulers, priorities, topology."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from rlt_api.model import NOT_YET, ApiModel, ObjectName

LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=316)]


class Topology(ApiModel):
    """Pods near each other."""

    key: LabelKey
    """The node label whose value must be alike, such as nvidia.com/gpu.clique."""
    mode: Literal["preferred", "required"] = "preferred"
    """Whether the job waits for it."""


class Scheduling(ApiModel):
    """Queues, schedulers, priorities, topology."""

    queue_name: ObjectName | None = None
    """Kueue's LocalQueue: the label kueue.x-k8s.io/queue-name of the RayCluster. A label of that name on the job itself
    does the same, and wins."""
    scheduler_name: ObjectName | None = None
    """The scheduler of all pods. Default: the cluster's."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of all pods. Default: the cluster's."""
    gang: Annotated[bool, NOT_YET] = False
    """Whether the pods start all together or not at all, where the scheduler can."""
    topology: Annotated[Topology | None, NOT_YET] = None
    """Pods near each other. Default: spread over nodes, wherever they are."""
