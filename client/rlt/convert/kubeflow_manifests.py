"""Kubeflow's TrainJob and PyTorchJob."""

from __future__ import annotations

from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.pods import Pod, read_container, read_pod
from rlt.convert.programs import TORCHRUN, set_command, set_groups, set_working_directory
from rlt.convert.reader import Reader

TRAINER = ("node", "trainer")
"""The jobs of a runtime that train."""


def convert_train_job(draft: Draft, spec: Reader) -> None:
    """Convert the spec of a TrainJob."""
    trainer = spec.child("trainer")
    pod = _read_overrides(draft, spec)
    resources = trainer.take("resourcesPerNode")
    replicas = trainer.take("numNodes", 1)
    trainer.leave(("numProcPerNode",), TORCHRUN)
    if resources is not None:
        trainer.left["resources"] = resources
    read_container(draft, pod, trainer)
    set_command(draft, pod.command)
    set_working_directory(draft, pod)
    set_groups(draft, [("workers", replicas, pod)], on_head=True)
    runtime = spec.child("runtimeRef")
    name = runtime.take("name")
    spec.name("runtimeRef", name, "write an RLRuntime with its image and defaults: spec.runtimeRef")
    runtime.leave_rest("it names a runtime of Kubeflow")
    initializer = "download model and data in spec.framework.prepare, to a volume of spec.storage"
    spec.leave(("initializer", "datasetConfig", "modelConfig"), initializer)
    for part in ("labels", "annotations"):
        if values := spec.child(part).left:
            draft.metadata[part] = {**draft.metadata.get(part, {}), **values}
    spec.move("suspend", "suspend")
    spec.leave_rest()


def convert_pytorch_job(draft: Draft, spec: Reader) -> None:
    """Convert the spec of a PyTorchJob. Its master's container has the program."""
    groups: list[tuple[str, Any, Pod]] = []
    roles = spec.child("pytorchReplicaSpecs")
    for role in ("Master", "Worker"):
        if role in roles.left:
            group = roles.child(role)
            pod = read_pod(draft, group.child("template"))
            if not groups:
                set_command(draft, pod.command)
                set_working_directory(draft, pod)
            elif pod.command and [*map(str, pod.command)] != draft.get("framework.command"):
                group.name("template.spec.containers[0].command", pod.command, "a job runs the master's, on the head")
            pod.container.pop("workingDir", None)
            groups.append((role, group.take("replicas", 1), pod))
            group.leave(("restartPolicy",), "failurePolicy restarts the job")
            group.leave_rest()
    roles.leave_rest("it is not a role of a PyTorchJob")
    if not groups:
        set_command(draft, [])
    set_groups(draft, groups, on_head=True)
    _read_policy(spec.child("runPolicy"))
    spec.leave(("nprocPerNode", "elasticPolicy"), TORCHRUN)
    spec.leave_rest()


def _read_policy(policy: Reader) -> None:
    policy.move("suspend", "suspend")
    policy.move("activeDeadlineSeconds", "activeDeadlineSeconds")
    policy.move("ttlSecondsAfterFinished", "ttlSecondsAfterFinished")
    policy.move("backoffLimit", "failurePolicy.maxRestarts")
    scheduling = policy.child("schedulingPolicy")
    scheduling.move("queue", "scheduling.queueName")
    scheduling.move("priorityClass", "scheduling.priorityClassName")
    scheduling.leave_rest("with spec.scheduling.gang, all pods of a job start together")
    policy.leave_rest("the pods of a job end with it")


def _read_overrides(draft: Draft, spec: Reader) -> Pod:
    """The pod of the training by podTemplateOverrides, or by podSpecOverrides of older versions."""
    pod = Pod()
    for key in ("podTemplateOverrides", "podSpecOverrides"):
        for each in spec.children(key):
            targets = [str(target.get("name")) for target in each.take_list("targetJobs") if isinstance(target, dict)]
            if set(targets) & set(TRAINER) or not targets:
                each.name("targetJobs", targets, "the job has pods of these roles")
                if key == "podSpecOverrides":
                    each.left = {"spec": each.left}
                pod = read_pod(draft, each)
            else:
                each.name("targetJobs", targets, "only the training becomes pods of the job")
                each.leave_rest("only the training becomes pods of the job")
    pod.container.pop("workingDir", None)
    return pod
