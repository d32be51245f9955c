"""Kubernetes' Job, JobSet, and Volcano's Job."""

from __future__ import annotations

from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.pods import Pod, read_pod
from rlt.convert.programs import set_command, set_groups, set_working_directory
from rlt.convert.reader import Reader, shorten
from rlt.convert.volumes import move_shared_claim

Group = tuple[str, Any, Pod]


def convert_job(draft: Draft, spec: Reader) -> None:
    """Convert the spec of a Job."""
    spec.move("backoffLimit", "failurePolicy.maxRestarts")
    _set_program(draft, [_read_job(draft, spec, "workers", 1)])
    spec.leave_rest("the program runs once, on the head")


def convert_job_set(draft: Draft, spec: Reader) -> None:
    """Convert the spec of a JobSet: each of its jobs is a worker group."""
    groups = []
    for each in spec.children("replicatedJobs"):
        template = each.child("template")
        job = template.child("spec")
        template.leave_rest("metadata of the jobs")
        groups.append(_read_job(draft, job, str(each.take("name") or "workers"), each.take("replicas", 1)))
        job.leave_rest("a failed pod ends the attempt: see spec.failurePolicy")
        each.leave_rest("the pods of a job start together")
    _set_program(draft, groups)
    policy = spec.child("failurePolicy")
    policy.move("maxRestarts", "failurePolicy.maxRestarts")
    policy.leave_rest("every failure starts a new attempt")
    spec.move("suspend", "suspend")
    spec.move("ttlSecondsAfterFinished", "ttlSecondsAfterFinished")
    spec.leave_rest("Ray connects the pods, and the program's exit code is the job's")


def convert_volcano_job(draft: Draft, spec: Reader) -> None:
    """Convert the spec of Volcano's Job: each of its tasks is a worker group."""
    groups = []
    for each in spec.children("tasks"):
        pod = read_pod(draft, each.child("template"))
        groups.append((str(each.take("name") or "workers"), each.take("replicas", 1), pod))
        each.leave_rest("a failed pod ends the attempt: see spec.failurePolicy")
    _set_program(draft, groups)
    spec.move("queue", "scheduling.queueName")
    draft.put("scheduling.schedulerName", spec.take("schedulerName") or "volcano")
    spec.move("priorityClassName", "scheduling.priorityClassName")
    spec.move("maxRetry", "failurePolicy.maxRestarts")
    spec.move("ttlSecondsAfterFinished", "ttlSecondsAfterFinished")
    spec.leave(("minAvailable",), "Volcano starts all pods of a job together")
    spec.leave(("plugins",), "Ray connects the pods: they need no SSH, host files and variables")
    spec.leave_rest("add volumes to podTemplate; the job ends with its program")


def _read_job(draft: Draft, spec: Reader, name: str, count: Any) -> Group:
    """The pods of a Job: its parallelism, `count` times."""
    pod = read_pod(draft, spec.child("template"))
    parallel = spec.take("parallelism", 1)
    replicas = parallel * count if isinstance(parallel, int) and isinstance(count, int) else parallel
    if not isinstance(count, int):
        spec.name("replicas", count, "it is not a number")
    for key in ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "suspend"):
        spec.move(key, key)
    return name, replicas, pod


def _set_program(draft: Draft, groups: list[Group]) -> None:
    """The job runs the command of the first pod that has one. One pod without devices, beside others, is the head."""
    programs = [pod for _, _, pod in groups if pod.command]
    set_command(draft, programs[0].command if programs else [])
    for _, _, pod in groups:
        if pod.command and pod.command != programs[0].command:
            text = shorten(" ".join(map(str, pod.command)))
            draft.leave_out(f"the program {text}", "a job has one program, on the head")
        if pod in programs[:1]:
            set_working_directory(draft, pod)
        pod.container.pop("workingDir", None)
    heads = [
        each for each in groups if each[1] == 1 and each[2] in programs[:1] and "accelerator" not in each[2].fields
    ]
    if not heads or len(groups) == 1:
        set_groups(draft, groups, on_head=True)
        return
    name, _, head = heads[0]
    move_shared_claim(draft, [pod for _, _, pod in groups])
    draft.put("cluster.head", head.build("ray-head"))
    draft.leave_out(f"the job {name}", "it is the head of the job")
    set_groups(draft, [each for each in groups if each is not heads[0]], on_head=False)
