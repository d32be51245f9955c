"""Fields of a job that only Kubernetes carries out. A target without Kubernetes leaves them out, with a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.spec.model_images import list_images
from rlt_core.children.function_files import list_function_maps
from rlt_core.children.sandboxes import get_sandbox
from rlt_core.job import Job

LEFT_OUT = {
    "scheduling.queueName": "choose a queue of the scheduler there",
    "scheduling.schedulerName": "the target has its own scheduler",
    "scheduling.priorityClassName": "choose a priority of the scheduler there",
    "scheduling.topology": "choose the nodes there",
    "cluster.imagePullSecrets": "log in to the registry on the machines",
    "cluster.head.podTemplate": "add its content to the rendered file",
    "cluster.head.nodeSelector": "the first worker is the head",
    "cluster.head.tolerations": "the first worker is the head",
    "cluster.workers[].podTemplate": "add its content to the rendered file",
    "cluster.workers[].nodeSelector": "choose the nodes there",
    "cluster.workers[].tolerations": "choose the nodes there",
    "storage.claimName": "mount a shared folder at storage.mountPath, or pass --storage",
    "storage.storageClassName": "mount a shared folder at storage.mountPath, or pass --storage",
    "storage.secretName": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in your environment",
    "publish[].secretName": "set its keys in your environment",
    "storage.modelCache.claimName": "mount the folder with the models at its mountPath",
    "failurePolicy.restartPolicy": "each attempt runs on the same Ray cluster there",
    "framework.runtimeEnv": "install the packages in the image or the environment there",
    "ttlSecondsAfterFinished": "delete the files yourself",
    "suspend": "cancel the job, and start it again",
}
"""Field below spec -> what to do instead. `[]` is any item of a list."""
NO_NODES = "no scheduler replaces a lost node: start Ray on another machine with this script, and submit again"
KEPT = "Ray runs until you stop it"
NEEDS_SCHEDULER = {
    "ray": {"maxDisruptions": NO_NODES, "keepClusterSeconds": KEPT, "excludeFaultyNodes": NO_NODES},
    "docker": {"maxDisruptions": NO_NODES, "keepClusterSeconds": KEPT, "excludeFaultyNodes": NO_NODES},
    "compose": {
        "maxDisruptions": "the job has one machine: start it again yourself",
        "keepClusterSeconds": "without --exit-code-from, the container ray runs until you stop it",
        "excludeFaultyNodes": "the job has one machine",
    },
    "dstack": {
        "maxDisruptions": "dstack limits the time of new attempts, not their number: set retry in the task",
        "keepClusterSeconds": "dstack ends the machines of a task with it: its logs are in the storage",
        "excludeFaultyNodes": "dstack chooses the machines: remove a faulty one from the fleet",
    },
    "slurm": {},
}
"""Target -> field of failurePolicy without an effect there -> why, and what to do. Slurm has all of them."""


def find_left_out(job: Job, target: str) -> Iterator[str]:
    """Yield a sentence for each field that the job sets and that has no effect in the target of `rlt render`."""
    assert job.spec
    for field, advice in LEFT_OUT.items():
        for path, value in _find_set(job, field):
            yield f"spec.{path}: {_shorten(value)}has no effect outside of Kubernetes: {advice}"
    for name, reason in NEEDS_SCHEDULER[target].items():
        for path, value in _find_set(job, f"failurePolicy.{name}"):
            yield f"spec.{path}: {_shorten(value)}has no effect with --target {target}: {reason}"
    if get_sandbox(job.spec):
        yield (
            "spec.rollout.multiTurn.sandbox: has no pods outside of Kubernetes, and the run would end before the "
            "training: remove it, and the tool python runs as a process of the driver"
        )
    for variable in (each for each in job.spec.cluster.env if each.value is None):
        yield f"spec.cluster.env: {variable.name} is not read from Kubernetes: set it in your environment"
    for image in list_images(job.spec):
        yield f"the image {image} is not mounted: copy its files to the shared folder, and use their path"
    for name in list_function_maps(job.spec):
        yield f"the ConfigMap {name} with user-defined functions is not read: copy its files to /etc/rlt-functions"


def _find_set(job: Job, field: str) -> Iterator[tuple[str, Any]]:
    """The paths that a field stands for, and their values, if the job sets them to anything but off."""
    found = _find_values(job.submitted_spec, field.split("."))
    return ((path, value) for path, value in found if value not in (None, {}, [], False, "none"))


def _find_values(value: Any, path: list[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not path:
        yield prefix, value
        return
    name, *rest = path
    key = name.removesuffix("[]")
    child = value.get(key) if isinstance(value, Mapping) else None
    field = f"{prefix}.{key}" if prefix else key
    if child is None:
        return
    if name.endswith("[]"):
        for index, item in enumerate(child):
            yield from _find_values(item, rest, f"{field}[{index}]")
    else:
        yield from _find_values(child, rest, field)


def _shorten(value: Any) -> str:
    return f"{value} " if isinstance(value, str | int) and not isinstance(value, bool) else ""
