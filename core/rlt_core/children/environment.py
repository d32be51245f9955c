"""The environment variables of all pods: what the operator sets, and the user's own, which win."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.operations import Observability, Wandb
from rlt_api.blocks.resources import EnvVar, KeyReference
from rlt_api.spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.attachment import get_network
from rlt_core.fabric.demand import UNREAD_VALUE
from rlt_core.fabric.settings import MOUNT_VARIABLES
from rlt_core.job import Job, Manifest

FIXED_ENV = {
    "HOME": "/tmp",  # the user has no home in the image
    "PYTHONUNBUFFERED": "1",
    "RAY_AUTH_MODE": "disabled",  # Ray 2.60 takes "token" if it finds one in the image; the operator reads no secrets
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_memory_monitor_refresh_ms": "0",  # the kernel's OOM killer is the judge, and the kubelet reports it
}

DEBUGGER_ENV = {
    "none": {},
    "ray": {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1"},
    "legacy": {"RAY_DEBUG": "legacy"},
}
"""Ray's two debuggers (ray/util/rpdb.py, Ray 2.60)."""


JOB_STOP_TIMEOUT_S = 300
"""So long may a training take for its last checkpoint when it is suspended. cluster.env may say otherwise."""


def build_env(job: Job, spec: RLTrainingJobSpec, *, mounted: bool) -> list[Manifest]:
    """A container's env: the operator's by name, then the user's as given, which may refer to them as $(NAME)."""
    own = {
        **{name: {"name": name, "value": value} for name, value in _list_fabric_variables(job, mounted=mounted)},
        **{name: {"name": name, "value": value} for name, value in _build_values(job, spec).items()},
        **{variable["name"]: variable for variable in _build_secret_env(spec.observability)},
    }
    given = {variable.name for variable in spec.cluster.env}
    return [
        *(own[name] for name in sorted(own) if name not in given),
        *(_build_variable(variable) for variable in spec.cluster.env),
    ]


def _build_values(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    watched, cache = spec.observability, spec.storage.model_cache
    values = {**FIXED_ENV, "HF_HOME": names.hf_home(spec), **DEBUGGER_ENV[watched.debugger]}
    if spec.framework.type == "builtin" and spec.checkpoint.save_freq > 0:
        values["RAY_JOB_STOP_WAIT_TIME_S"] = str(JOB_STOP_TIMEOUT_S)
    if cache and cache.read_only:
        values["HF_HUB_OFFLINE"] = "1"
    if watched.timeline and watched.timeline.enabled:
        values["RAY_PROFILING"] = "1"
    if watched.wandb:
        values |= _build_wandb_env(watched.wandb, job)
    if watched.tensorboard:
        run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
        values["TENSORBOARD_DIR"] = watched.tensorboard.directory or f"{run_directory}/tensorboard"
    return values


def _list_fabric_variables(job: Job, *, mounted: bool) -> Iterator[tuple[str, str]]:
    """What was decided for the network; without the hosts' folders nothing that refers to them."""
    for setting in get_network(job).env:
        if setting.value != UNREAD_VALUE and (mounted or setting.name not in MOUNT_VARIABLES):
            yield setting.name, setting.value


def _build_wandb_env(wandb: Wandb, job: Job) -> dict[str, str]:
    """wandb reads each of its settings from WANDB_ and its name (wandb/sdk/wandb_settings.py, wandb 0.31)."""
    settings = {
        "WANDB_PROJECT": wandb.project or job.namespace,
        "WANDB_ENTITY": wandb.entity,
        "WANDB_BASE_URL": wandb.base_url,
        "WANDB_HTTP_PROXY": wandb.proxy,  # to a server of your own behind http://
        "WANDB_HTTPS_PROXY": wandb.proxy,
    }
    return {name: value for name, value in settings.items() if value}


def _build_secret_env(watched: Observability) -> list[Manifest]:
    return [_build_reference("WANDB_API_KEY", "secretKeyRef", watched.wandb.api_key)] if watched.wandb else []


def _build_variable(variable: EnvVar) -> Manifest:
    if variable.secret_key_ref:
        return _build_reference(variable.name, "secretKeyRef", variable.secret_key_ref)
    if variable.config_map_key_ref:
        return _build_reference(variable.name, "configMapKeyRef", variable.config_map_key_ref)
    return {"name": variable.name, "value": variable.value or ""}


def _build_reference(name: str, kind: str, key: KeyReference) -> Manifest:
    return {"name": name, "valueFrom": {kind: key.to_json()}}
