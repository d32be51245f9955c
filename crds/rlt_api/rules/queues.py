"""Schedulers, queues and gangs that go together."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.finding import Finding
from rlt_api.spec import RLTrainingJobSpec

QUEUE_LABELS = {
    "volcano": "volcano.sh/queue-name",
    "yunikorn": "yunikorn.apache.org/queue",
    "kai-scheduler": "kai.scheduler/queue",
}
"""Schedulers with queues of their own, and the RayCluster's label that KubeRay takes the queue from."""
ALWAYS_GANGS = frozenset({"volcano", "kai-scheduler"})
"""Schedulers that start a RayCluster's pods all together whether or not they are asked to."""
GANG_LABEL_SCHEDULERS = frozenset({"yunikorn", "scheduler-plugins-scheduler"})
"""Schedulers that do so where KubeRay finds the label ray.io/gang-scheduling-enabled."""


def gang_has_a_scheduler(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Kubernetes' default scheduler starts pods one by one: two jobs may each hold half of what they need."""
    scheduling = spec.scheduling
    if not scheduling.gang or scheduling.scheduler_name in ALWAYS_GANGS | GANG_LABEL_SCHEDULERS:
        return
    if scheduling.scheduler_name is None and scheduling.queue_name:
        return  # Kueue admits a job whole
    known = ", ".join(sorted(ALWAYS_GANGS | GANG_LABEL_SCHEDULERS))
    yield Finding(
        "spec.scheduling.gang",
        "true",
        f"scheduler {scheduling.scheduler_name or 'default'} starts pods one by one",
        f"give schedulerName, one of {known}, or Kueue's queueName",
        "gang",
        ("spec.scheduling.schedulerName", "spec.scheduling.queueName"),
    )


def kai_has_a_queue(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """KubeRay: "Queue label missing from parent; child will remain pending" (kai_scheduler.go)."""
    if spec.scheduling.scheduler_name == "kai-scheduler" and spec.scheduling.queue_name is None:
        yield Finding(
            "spec.scheduling.queueName",
            "none",
            "kai-scheduler leaves pods without a queue pending",
            "name a Queue",
            "queue",
            ("spec.scheduling.schedulerName",),
        )


RULES = (gang_has_a_scheduler, kai_has_a_queue)
