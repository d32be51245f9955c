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
KUBERNETES_SCHEDULER = "default-scheduler"
"""Kubernetes' own, which does so as an alpha of 1.35 (see rlt_core.children.gang). It must be named: almost no
cluster has that switched on."""
GANG_SCHEDULERS = ALWAYS_GANGS | GANG_LABEL_SCHEDULERS | {KUBERNETES_SCHEDULER}

MAX_GROUPS_OF_KUEUE = 7


def gang_has_a_scheduler(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A scheduler that starts pods one by one may give two jobs half of what they need each."""
    scheduling = spec.scheduling
    if not scheduling.gang or scheduling.scheduler_name in GANG_SCHEDULERS:
        return
    if scheduling.scheduler_name is None and scheduling.queue_name:
        return  # Kueue admits a job whole
    alpha = f"{KUBERNETES_SCHEDULER} (an alpha of Kubernetes 1.35)"
    known = ", ".join([*sorted(GANG_SCHEDULERS - {KUBERNETES_SCHEDULER}), alpha])
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


def kueue_takes_the_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A Workload has up to 8 sets of pods, one of them Ray's head, called head (raycluster_webhook.go, Kueue 0.15)."""
    scheduling, groups = spec.scheduling, spec.cluster.workers
    if scheduling.queue_name is None or scheduling.scheduler_name in QUEUE_LABELS:
        return
    queue = ("spec.scheduling.queueName", "spec.scheduling.schedulerName")
    if len(groups) > MAX_GROUPS_OF_KUEUE:
        message, fix = f"Kueue takes {MAX_GROUPS_OF_KUEUE} worker groups", "join some of them, or leave queueName out"
        yield Finding("spec.cluster.workers", f"{len(groups)} groups", message, fix, "queue", queue)
    for index, group in enumerate(groups):
        if group.name == "head":
            message, fix = "is Kueue's name for Ray's head", "use another name"
            yield Finding(f"spec.cluster.workers[{index}].name", "head", message, fix, "queue", queue)


RULES = (gang_has_a_scheduler, kai_has_a_queue, kueue_takes_the_groups)
