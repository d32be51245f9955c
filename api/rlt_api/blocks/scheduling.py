"""spec.scheduling: queues, schedulers, priorities and topology."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from rlt_api.model import ApiModel, ObjectName

LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=316)]


class Topology(ApiModel):
    """Placement of workers close to each other."""

    key: LabelKey
    """The node label whose value must be the same, such as nvidia.com/gpu.clique or topology.kubernetes.io/rack."""
    mode: Literal["preferred", "required"] = "preferred"
    """required: workers stay pending if no such nodes are available. preferred: workers use other nodes instead."""


class Scheduling(ApiModel):
    """Queues, schedulers, priorities and topology."""

    queue_name: ObjectName | None = None
    """Kueue's LocalQueue: the label kueue.x-k8s.io/queue-name of the RayCluster. The same label on the job overrides
    it. With schedulerName volcano, yunikorn or kai-scheduler: a queue of that scheduler."""
    scheduler_name: ObjectName | None = None
    """The scheduler of all pods. Default: the cluster's. KubeRay must run with the same batchScheduler."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of all pods. Default: the cluster's."""
    gang: bool = False
    """Whether all pods are scheduled together or not at all: by Kueue, volcano, kai-scheduler, yunikorn or
    scheduler-plugins-scheduler."""
    topology: Topology | None = None
    """Placement of workers close to each other. Default: spread over all nodes."""
