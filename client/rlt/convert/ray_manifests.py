"""KubeRay's RayCluster and RayJob."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rlt.convert.draft import Draft
from rlt.convert.pods import Pod, apply_env, read_pod
from rlt.convert.programs import set_command, set_groups, split_command
from rlt.convert.reader import Json, Reader
from rlt.convert.volumes import move_shared_claim

KUBERAY = "the operator and KubeRay set it"
FIXED = "a job has a fixed number of workers"
START = "KubeRay starts Ray: put other commands into spec.framework.prepare or into the image"
HEAD = "the head of a job does not train: its pod is one of a worker group"
ARCHIVE = re.compile(r"(https|s3|gs|file)://\S+\.(zip|whl)")


def convert_ray_cluster(draft: Draft, spec: Reader) -> None:
    """Convert the spec of a RayCluster."""
    _read_cluster(draft, spec)
    if "framework" not in draft.spec:
        draft.leave_out("the program", "a RayCluster has none: set spec.framework, or model and data of a builtin job")


def convert_ray_job(draft: Draft, spec: Reader) -> None:
    """Convert the spec of a RayJob."""
    _read_runtime_env(draft, spec)
    set_command(draft, split_command(str(spec.take("entrypoint") or "")))
    spec.move("activeDeadlineSeconds", "activeDeadlineSeconds")
    spec.move("preRunningDeadlineSeconds", "pendingDeadlineSeconds")
    spec.move("backoffLimit", "failurePolicy.maxRestarts")
    spec.move("suspend", "suspend")
    spec.move("ttlSecondsAfterFinished", "ttlSecondsAfterFinished")
    _read_cluster(draft, spec.child("rayClusterSpec"))
    spec.leave(("clusterSelector",), "a job has its own Ray cluster: convert the RayCluster that it selects")
    entry = ("entrypointNumCpus", "entrypointNumGpus", "entrypointResources")
    spec.leave(entry, "the program runs on the head, without devices")
    shutdown = ("shutdownAfterJobFinishes", "deletionStrategy", "deletionPolicy")
    spec.leave(shutdown, "the Ray cluster ends with the job; see spec.failurePolicy.keepClusterSeconds")
    spec.leave_rest("the operator submits the program")


def _read_cluster(draft: Draft, spec: Reader) -> None:
    groups: list[tuple[str, Any, Pod]] = []
    head_spec = spec.child("headGroupSpec")
    head = read_pod(draft, head_spec.child("template"))
    _drop_start(head_spec, head)
    head_spec.leave_rest(KUBERAY)
    for group in spec.children("workerGroupSpecs"):
        groups.append(_read_group(draft, group))
    if "accelerator" in head.fields:
        groups.append(("workers", 1, head))
        head_spec.name("template", head.fields, HEAD)
    move_shared_claim(draft, [head, *(pod for _, _, pod in groups if pod is not head)])
    fields = head.build_head() if "accelerator" in head.fields else head.build("ray-head")
    if fields:  # the head of the job still runs the program
        draft.put("cluster.head", fields)
    set_groups(draft, groups, on_head=False)
    spec.move("rayVersion", "cluster.rayVersion")
    spec.move("suspend", "suspend")
    spec.leave(("enableInTreeAutoscaling", "autoscalerOptions"), FIXED)
    spec.leave_rest(KUBERAY)


def _read_group(draft: Draft, group: Reader) -> tuple[str, Any, Pod]:
    pod = read_pod(draft, group.child("template"))
    _drop_start(group, pod)
    parameters = group.child("rayStartParams")
    number = parameters.take("num-cpus")
    if number is not None:
        pod.fields["numCpus"] = int(number) if str(number).isdigit() else number
    parameters.leave_rest(KUBERAY)
    replicas = _take_replicas(group)
    hosts = group.take("numOfHosts")
    if isinstance(hosts, int) and isinstance(replicas, int):
        replicas *= hosts
    elif hosts is not None:
        group.name("numOfHosts", hosts, "it is not a number")
    group.leave(("minReplicas", "maxReplicas", "idleTimeoutSeconds", "scaleStrategy"), FIXED)
    name = str(group.take("groupName") or "workers")
    group.leave_rest(KUBERAY)
    return name, replicas, pod


def _take_replicas(group: Reader) -> Any:
    """The replicas. A group that the autoscaler fills has its minimum, otherwise its maximum."""
    replicas = group.take("replicas")
    if replicas:
        return replicas
    bounds = [group.left.get(key) for key in ("minReplicas", "maxReplicas")]
    chosen = next((each for each in bounds if isinstance(each, int) and each > 0), 1)
    group.name("replicas", str(replicas or 0), f"a group of a job is not empty: {chosen} is used")
    return chosen


def _drop_start(group: Reader, pod: Pod) -> None:
    """The command of Ray's containers."""
    if pod.command:
        group.name("template.spec.containers[0].command", pod.command, START)


def _read_runtime_env(draft: Draft, spec: Reader) -> None:
    text = spec.take("runtimeEnvYAML")
    if not text:
        return
    try:
        value = yaml.safe_load(str(text))
    except yaml.YAMLError:
        spec.name("runtimeEnvYAML", text, "it is not YAML: set spec.framework.runtimeEnv")
        return
    environment = Reader(draft, value, "spec.runtimeEnvYAML")
    variables = environment.child("env_vars").left
    path = "spec.runtimeEnvYAML.env_vars"
    listed = [Reader(draft, {"name": key, "value": each}, f"{path}.{key}") for key, each in variables.items()]
    apply_env(draft, listed, Pod())
    kept = _read_packages(environment)
    if kept:
        draft.put("framework.runtimeEnv", kept)
    environment.leave_rest("install it in spec.cluster.image")


def _read_packages(environment: Reader) -> Json:
    """What spec.framework.runtimeEnv has: requirements, and archives at an address."""
    kept: Json = {}
    pip = environment.left.get("pip")
    requirements = pip.get("packages") if isinstance(pip, dict) and [*pip] == ["packages"] else pip
    if isinstance(requirements, list) and all(isinstance(each, str) for each in requirements):
        kept["pip"] = environment.take("pip") and requirements
    for key, name in (("working_dir", "workingDir"), ("py_modules", "pyModules")):
        value = environment.left.get(key)
        addresses = value if isinstance(value, list) else [value]
        if value and all(isinstance(each, str) and ARCHIVE.fullmatch(each) for each in addresses):
            kept[name] = environment.take(key)
    return kept
