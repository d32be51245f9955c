"""Schedulers, queues and gang scheduling."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.findings.kinds import required
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
SCHEDULER = "spec.scheduling.schedulerName"
QUEUE = "spec.scheduling.queueName"


def validate_gang(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """gang needs a scheduler that supports it, or Kueue: otherwise two jobs can each get half of their pods."""
    scheduling = spec.scheduling
    if not scheduling.gang or scheduling.scheduler_name in GANG_SCHEDULERS:
        return
    if scheduling.scheduler_name is None and scheduling.queue_name:
        return  # Kueue admits all pods of a job or none
    message = f"is not supported by scheduler {scheduling.scheduler_name or 'default'}"
    alpha = f"{KUBERNETES_SCHEDULER} (alpha in Kubernetes 1.35)"
    known = ", ".join([*sorted(GANG_SCHEDULERS - {KUBERNETES_SCHEDULER}), alpha])
    fix = f"set schedulerName to one of {known}, or use Kueue's queueName"
    edits = use(SCHEDULER, *sorted(GANG_SCHEDULERS))
    involved = (SCHEDULER, QUEUE)
    yield Finding("spec.scheduling.gang", "true", message, fix, rule="gang", involved=involved, edits=edits)


def validate_kai_queue(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """kai-scheduler needs queueName: it leaves pods without a queue pending (kai_scheduler.go)."""
    if spec.scheduling.scheduler_name == "kai-scheduler" and spec.scheduling.queue_name is None:
        yield required(QUEUE, "kai-scheduler", "add the name of a Queue", rule="queue", involved=(SCHEDULER,))


def validate_kueue_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Kueue supports up to 7 worker groups, and none with the name head: a Workload has up to 8 sets of pods, one for
    Ray's head (raycluster_webhook.go, Kueue 0.15)."""
    scheduling = spec.scheduling
    groups = spec.cluster.workers
    if scheduling.queue_name is None or scheduling.scheduler_name in QUEUE_LABELS:
        return
    involved = (QUEUE, SCHEDULER)
    if len(groups) > MAX_KUEUE_GROUPS:
        value = f"{len(groups)} groups"
        message = f"is more than the {MAX_KUEUE_GROUPS} of Kueue"
        fix = "merge some of them, or remove queueName"
        yield Finding("spec.cluster.workers", value, message, fix, rule="queue", involved=involved)
    for index, group in enumerate(groups):
        if group.name == "head":
            field = f"spec.cluster.workers[{index}].name"
            message = "is reserved by Kueue for Ray's head"
            fix = "use another name, such as workers"
            edits = use(field, "workers")
            yield Finding(field, "head", message, fix, rule="queue", involved=involved, edits=edits)


RULES = (validate_gang, validate_kai_queue, validate_kueue_groups)
