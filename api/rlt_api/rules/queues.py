"""Schedulers, queues and gang scheduling."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a job and its RayCluster: the LocalQueue in which Kueue admits it (kueue pkg/controller/constants)."""
QUEUE_LABELS = {
    "volcano": "volcano.sh/queue-name",
    "yunikorn": "yunikorn.apache.org/queue",
    "kai-scheduler": "kai.scheduler/queue",
}
"""Scheduler with queues -> the label of the RayCluster from which KubeRay reads the queue."""
ALWAYS_GANGS = frozenset({"volcano", "kai-scheduler"})
"""Schedulers that always gang-schedule the pods of a RayCluster."""
GANG_LABEL_SCHEDULERS = frozenset({"yunikorn", "scheduler-plugins-scheduler"})
"""Schedulers that do so if the RayCluster has the label ray.io/gang-scheduling-enabled."""
KUBERNETES_SCHEDULER = "default-scheduler"
"""The Kubernetes scheduler, where gang scheduling is an alpha feature of 1.35 (see rlt_core.children.gang). A job must
name it, because few clusters enable the feature."""
GANG_SCHEDULERS = ALWAYS_GANGS | GANG_LABEL_SCHEDULERS | {KUBERNETES_SCHEDULER}

MAX_KUEUE_GROUPS = 7


def validate_gang(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """gang needs a scheduler that supports it, or Kueue: otherwise two jobs can each get half of their pods."""
    scheduling = spec.scheduling
    if not scheduling.gang or scheduling.scheduler_name in GANG_SCHEDULERS:
        return
    if scheduling.scheduler_name is None and scheduling.queue_name:
        return  # Kueue admits all pods of a job or none
    alpha = f"{KUBERNETES_SCHEDULER} (alpha in Kubernetes 1.35)"
    known = ", ".join([*sorted(GANG_SCHEDULERS - {KUBERNETES_SCHEDULER}), alpha])
    yield Finding(
        "spec.scheduling.gang",
        "true",
        f"is not supported by scheduler {scheduling.scheduler_name or 'default'}",
        f"set schedulerName to one of {known}, or use Kueue's queueName",
        "gang",
        ("spec.scheduling.schedulerName", "spec.scheduling.queueName"),
        use("spec.scheduling.schedulerName", *sorted(GANG_SCHEDULERS)),
    )


def validate_kai_queue(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """kai-scheduler needs queueName: it leaves pods without a queue pending (kai_scheduler.go)."""
    if spec.scheduling.scheduler_name == "kai-scheduler" and spec.scheduling.queue_name is None:
        yield Finding(
            "spec.scheduling.queueName",
            "none",
            "is required by kai-scheduler",
            "add the name of a Queue",
            "queue",
            ("spec.scheduling.schedulerName",),
        )


def validate_kueue_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Kueue supports up to 7 worker groups, and none with the name head: a Workload has up to 8 sets of pods, one for
    Ray's head (raycluster_webhook.go, Kueue 0.15)."""
    scheduling, groups = spec.scheduling, spec.cluster.workers
    if scheduling.queue_name is None or scheduling.scheduler_name in QUEUE_LABELS:
        return
    queue = ("spec.scheduling.queueName", "spec.scheduling.schedulerName")
    if len(groups) > MAX_KUEUE_GROUPS:
        message, fix = f"is more than the {MAX_KUEUE_GROUPS} of Kueue", "merge some of them, or remove queueName"
        yield Finding("spec.cluster.workers", f"{len(groups)} groups", message, fix, "queue", queue)
    for index, group in enumerate(groups):
        if group.name == "head":
            message, fix = "is reserved by Kueue for Ray's head", "use another name, such as workers"
            field = f"spec.cluster.workers[{index}].name"
            yield Finding(field, "head", message, fix, "queue", queue, use(field, "workers"))


RULES = (validate_gang, validate_kai_queue, validate_kueue_groups)
