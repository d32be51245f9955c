"""RayCluster, RayJob, and Kubeflow's TrainJob and PyTorchJob."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from rlt.convert.draft import Draft
from rlt.convert.pods import Json, Reader, apply_container, apply_env, apply_pod, apply_resources
from rlt.convert.script import apply_devices, build_command
from rlt_api.frameworks.known_programs import find_program

WORKERS = "cluster.workers[]"
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TORCHRUN = "torchrun's rendezvous belongs to the source's operator: a job runs the command once, on the head"


def convert_manifest(manifest: Json) -> Draft:
    """Convert a resource of a supported kind."""
    draft = Draft()
    metadata = Reader(manifest.get("metadata"), "metadata")
    draft.name = metadata.take("name") or metadata.take("generateName") or draft.name
    labels = metadata.take("labels") or {}
    if queue := labels.get(KUEUE_LABEL):
        draft.put("scheduling.queueName", queue)
    CONVERTERS[manifest["kind"]](draft, Reader(manifest.get("spec"), "spec"))
    return draft


def _convert_ray_cluster(draft: Draft, spec: Reader) -> None:
    head = spec.child("headGroupSpec")
    apply_pod(draft, _template(head), "cluster.head")
    for key in ("rayStartParams", "serviceType", "enableIngress", "headService"):
        head.take(key)
    head.leave_out(draft)
    groups = []
    for index, value in enumerate(spec.take("workerGroupSpecs") or []):
        group = Reader(value, f"spec.workerGroupSpecs[{index}]")
        own = Draft(spec={"cluster": {**draft.spec.get("cluster", {}), "workers": [{}]}}, left_out=draft.left_out)
        apply_pod(own, _template(group), WORKERS)
        (worker,) = own.spec["cluster"].pop("workers")
        groups.append({"name": group.take("groupName") or "workers", "replicas": group.take("replicas", 1), **worker})
        for key in ("rayStartParams", "minReplicas", "maxReplicas"):
            group.take(key)
        group.leave_out(draft)
        draft.spec["cluster"] = own.spec["cluster"]
        draft.spec.update({key: value for key, value in own.spec.items() if key != "cluster"})
    if groups:
        draft.put("cluster.workers", groups)
    if version := spec.take("rayVersion"):
        draft.put("cluster.rayVersion", version)
    if spec.take("enableInTreeAutoscaling"):
        draft.leave_out("spec.enableInTreeAutoscaling", "a job has a fixed number of workers")
    spec.take("autoscalerOptions")
    if spec.take("suspend"):
        draft.put("suspend", True)
    spec.leave_out(draft)
    if "framework" not in draft.spec:
        draft.leave_out("the program", "a RayCluster has none: set spec.framework, or model and data of a builtin job")


def _convert_ray_job(draft: Draft, spec: Reader) -> None:
    entrypoint = spec.take("entrypoint") or ""
    runtime_env = yaml.safe_load(spec.take("runtimeEnvYAML") or "{}")
    for name, value in (runtime_env.pop("env_vars", None) or {}).items():
        apply_env(draft, [{"name": name, "value": value}])
    for key in runtime_env:
        draft.leave_out(f"runtimeEnvYAML {key}", "install it in spec.cluster.image")
    _set_command(draft, shlex.split(entrypoint) if "$" not in entrypoint else ["bash", "-c", entrypoint])
    _take(draft, spec, {"activeDeadlineSeconds": "activeDeadlineSeconds", "backoffLimit": "failurePolicy.maxRestarts"})
    _take(draft, spec, {"suspend": "suspend", "ttlSecondsAfterFinished": "ttlSecondsAfterFinished"})
    _convert_ray_cluster(draft, spec.child("rayClusterSpec"))
    for key in ("shutdownAfterJobFinishes", "submissionMode", "submitterPodTemplate", "submitterConfig", "jobId"):
        spec.take(key)
    spec.leave_out(draft)


def _convert_train_job(draft: Draft, spec: Reader) -> None:
    trainer = spec.child("trainer")
    _set_command(draft, [*(trainer.take("command") or []), *(trainer.take("args") or [])])
    draft.put(f"{WORKERS}.replicas", trainer.take("numNodes", 1))
    apply_resources(draft, Reader(trainer.take("resourcesPerNode"), "spec.trainer.resourcesPerNode"), WORKERS)
    apply_container(draft, trainer, WORKERS)
    runtime = (spec.take("runtimeRef") or {}).get("name")
    draft.leave_out(f"spec.runtimeRef {runtime}", "write an RLRuntime with its image and defaults: spec.runtimeRef")
    _take(draft, spec, {"suspend": "suspend"})
    spec.leave_out(draft)


def _convert_pytorch_job(draft: Draft, spec: Reader) -> None:
    replicas = spec.take("pytorchReplicaSpecs") or {}
    total = 0
    for role in ("Worker", "Master"):  # the master's container has the command
        if role in replicas:
            group = Reader(replicas[role], f"spec.pytorchReplicaSpecs.{role}")
            total += group.take("replicas", 1)
            pod = _template(group)
            container = dict((pod.left.get("containers") or [{}])[0])
            _set_command(draft, [*container.pop("command", []), *container.pop("args", [])])
            pod.left["containers"] = [container, *(pod.left.get("containers") or [{}])[1:]]
            apply_pod(draft, pod, WORKERS)
            group.take("restartPolicy")
            group.leave_out(draft)
    draft.put(f"{WORKERS}.replicas", total or 1)
    policy = spec.child("runPolicy")
    _take(draft, policy, {"suspend": "suspend", "activeDeadlineSeconds": "activeDeadlineSeconds"})
    _take(
        draft,
        policy,
        {"ttlSecondsAfterFinished": "ttlSecondsAfterFinished", "backoffLimit": "failurePolicy.maxRestarts"},
    )
    policy.take("cleanPodPolicy")
    policy.leave_out(draft)
    for key in ("nprocPerNode", "elasticPolicy"):
        if spec.take(key):
            draft.leave_out(f"spec.{key}", TORCHRUN)
    spec.leave_out(draft)


def _template(group: Reader) -> Reader:
    """The pod of a group."""
    return Reader((group.take("template") or {}).get("spec"), f"{group.path}.template.spec")


def _take(draft: Draft, spec: Reader, fields: dict[str, str]) -> None:
    """Carry over fields with other names."""
    for key, path in fields.items():
        if (value := spec.take(key)) not in (None, False):
            draft.put(path, value)


def _set_command(draft: Draft, words: list[Any]) -> None:
    """The program of the job, if the source has one."""
    if not words:
        return
    command = tuple(map(str, words))
    if command[0].rpartition("/")[2] == "torchrun":
        draft.leave_out("torchrun", TORCHRUN)
    draft.put("framework", {"type": "command", "command": build_command(draft, command)})
    if program := find_program(command):
        apply_devices(draft, program)


CONVERTERS = {
    "RayCluster": _convert_ray_cluster,
    "RayJob": _convert_ray_job,
    "TrainJob": _convert_train_job,
    "PyTorchJob": _convert_pytorch_job,
}
