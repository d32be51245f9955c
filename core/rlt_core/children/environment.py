"""The environment variables of all pods: the operator's, overridden by the user's."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.operations import Observability, Wandb
from rlt_api.blocks.publish import BUCKET_KEYS, name_variable
from rlt_api.blocks.resources import EnvVar, KeyReference
from rlt_api.findings.masking import MASK
from rlt_api.frameworks.registry import get_framework
from rlt_api.rules.environment import JOB_STOP_TIMEOUT
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import downloads_to_each_pod
from rlt_api.spec.pod_variables import list_pod_variables
from rlt_api.spec.worker_groups import rollout_group
from rlt_core import names
from rlt_core.children.attachment import get_network
from rlt_core.children.attempt_directory import build_cluster_directory
from rlt_core.children.nccl_files import build_nccl_file_env
from rlt_core.children.ray_token import build_ray_token_env
from rlt_core.children.sandboxes import build_sandbox_env
from rlt_core.fabric.demand import UNREAD_VALUE
from rlt_core.fabric.settings import MOUNT_VARIABLES
from rlt_core.job import Job, Manifest
from rlt_pod.keep_logs import ATTEMPT_DIRECTORY

FIXED_ENV = {
    "HOME": "/tmp",  # the user has no home in the image
    "LOGNAME": "rlt",  # getpass.getuser() fails for a user ID without an account (torch 2.12 and earlier, inductor)
    "PYTHONUNBUFFERED": "1",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # 30 s by default; the preStop hook has ended the program
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_memory_monitor_refresh_ms": "0",  # leave OOM kills to the kernel; the kubelet reports them
    "USER": "rlt",
}

DEBUGGER_ENV = {
    "none": {},
    "ray": {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1"},
    "legacy": {"RAY_DEBUG": "legacy"},
}
"""Variables of Ray's debuggers (ray/util/rpdb.py, Ray 2.60)."""

END_OF_RAY_S = 5
"""The part of the grace period in which Ray itself ends, after the program."""
RAY_JOB_STOP_TIMEOUT_S = 3
"""Ray's default for RAY_JOB_STOP_WAIT_TIME_S."""


def build_env(job: Job, spec: RLTrainingJobSpec, *, mounted: bool, group: WorkerGroup | None = None) -> list[Manifest]:
    """Build the env of a container: the operator's variables by name, then the user's, which can refer to those.

    `group`: the worker group of the container's pod, if it is a node of the Ray cluster.
    """
    values = _build_values(job, spec) | (get_framework(spec).list_worker_variables(spec, group) if group else {})
    operator_env = {
        **{name: {"name": name, "value": value} for name, value in _list_fabric_variables(job, mounted=mounted)},
        **{name: {"name": name, "value": value} for name, value in values.items()},
        **{variable["name"]: variable for variable in _build_secret_env(spec.observability)},
        **{variable["name"]: variable for variable in _build_bucket_env(spec, group)},
        **{variable["name"]: variable for variable in _build_publish_env(spec, group)},
    }
    user_names = {variable.name for variable in spec.cluster.env}
    return [
        *(operator_env[name] for name in sorted(operator_env) if name not in user_names),
        *(_build_variable(each) for each in list_pod_variables(spec.rewards, spec.rollout.multi_turn)),
        *(_build_variable(variable) for variable in spec.cluster.env),
    ]


def get_stop_timeout(spec: RLTrainingJobSpec) -> int:
    """Seconds that Ray gives the program to save and exit when its job is stopped.

    A value from a Secret or ConfigMap is not known here, and counts as cluster.terminationGracePeriodSeconds.
    """
    own = [variable.value for variable in spec.cluster.env if variable.name == JOB_STOP_TIMEOUT]
    if own and own[-1] is not None and own[-1].isdecimal():
        return int(own[-1])
    return _divide_grace_period(spec) if own or _saves_at_its_end(spec) else RAY_JOB_STOP_TIMEOUT_S


def _saves_at_its_end(spec: RLTrainingJobSpec) -> bool:
    return not get_framework(spec).reads_fields or spec.checkpoint.save_freq > 0


def _divide_grace_period(spec: RLTrainingJobSpec) -> int:
    """The seconds of the pods' grace period that the program gets."""
    return max(1, spec.cluster.termination_grace_period_seconds - END_OF_RAY_S)


def _build_values(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    observability = spec.observability
    cache = spec.storage.model_cache
    values = {**FIXED_ENV, **build_ray_token_env(spec), **build_sandbox_env(job, spec), **names.cache_directories(spec)}
    if directory := build_cluster_directory(job, spec):
        values[ATTEMPT_DIRECTORY] = directory
    values |= build_nccl_file_env(job, spec)
    values |= DEBUGGER_ENV[observability.debugger]
    if _saves_at_its_end(spec):
        values[JOB_STOP_TIMEOUT] = str(_divide_grace_period(spec))
    if cache and cache.read_only:
        values["HF_HUB_OFFLINE"] = "1"
    if observability.timeline and observability.timeline.enabled:
        values["RAY_PROFILING"] = "1"
    values |= get_framework(spec).list_variables(spec)
    if observability.wandb:
        values |= _build_wandb_env(observability.wandb, job)
    if observability.tensorboard:
        run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
        values["TENSORBOARD_DIR"] = observability.tensorboard.directory or f"{run_directory}/tensorboard"
    return values


def _list_fabric_variables(job: Job, *, mounted: bool) -> Iterator[tuple[str, str]]:
    """The variables of the fabric. Without the host mounts those that refer to them are left out."""
    for setting in get_network(job).env:
        if setting.value not in (UNREAD_VALUE, MASK) and (mounted or setting.name not in MOUNT_VARIABLES):
            yield setting.name, setting.value


def _build_wandb_env(wandb: Wandb, job: Job) -> dict[str, str]:
    """wandb reads each setting from WANDB_<NAME> (wandb/sdk/wandb_settings.py, wandb 0.31)."""
    settings = {
        "WANDB_PROJECT": wandb.project or job.namespace,
        "WANDB_ENTITY": wandb.entity,
        "WANDB_BASE_URL": wandb.base_url,
        "WANDB_HTTP_PROXY": wandb.proxy,  # for a self-hosted server with http://
        "WANDB_HTTPS_PROXY": wandb.proxy,
    }
    return {name: value for name, value in settings.items() if value}


def _build_secret_env(observability: Observability) -> list[Manifest]:
    wandb = observability.wandb
    return [_build_reference("WANDB_API_KEY", "secretKeyRef", wandb.api_key)] if wandb else []


def _build_bucket_env(spec: RLTrainingJobSpec, group: WorkerGroup | None) -> list[Manifest]:
    """The keys of storage.secretName, for the pods that use a bucket: the head, the pods that train if the run has one
    or publishes to one with them, and all pods if each of them downloads models and data."""
    name = spec.storage.secret_name
    writes = spec.storage.bucket is not None or any(each.bucket and not each.secret_name for each in spec.publish)
    trains = writes and group is not rollout_group(spec)
    if name is None or not (group is None or trains or downloads_to_each_pod(spec)):
        return []
    return [_build_reference(key, "secretKeyRef", KeyReference(name=name, key=key)) for key in BUCKET_KEYS]


def _build_publish_env(spec: RLTrainingJobSpec, group: WorkerGroup | None) -> list[Manifest]:
    """The keys of publish, for the head and the pods that train: pods that only generate do not publish."""
    if group is not None and group is rollout_group(spec):
        return []
    return [
        _build_reference(name_variable(index, key), "secretKeyRef", KeyReference(name=each.secret_name, key=key))
        for index, each in enumerate(spec.publish)
        if each.secret_name is not None
        for key in each.keys
    ]


def _build_variable(variable: EnvVar) -> Manifest:
    if variable.secret_key_ref:
        return _build_reference(variable.name, "secretKeyRef", variable.secret_key_ref)
    if variable.config_map_key_ref:
        return _build_reference(variable.name, "configMapKeyRef", variable.config_map_key_ref)
    return {"name": variable.name, "value": variable.value or ""}


def _build_reference(name: str, kind: str, key: KeyReference) -> Manifest:
    return {"name": name, "valueFrom": {kind: key.to_json()}}
