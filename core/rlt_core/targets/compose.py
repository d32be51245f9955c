"""A Compose file: the whole job on one machine. https://github.com/compose-spec/compose-spec/blob/main/spec.md"""

from __future__ import annotations

from typing import Any

from rlt_core.names import DASHBOARD_PORT
from rlt_core.targets.container import ContainerOptions, choose_options
from rlt_core.targets.launch import Launch
from rlt_core.targets.ray import build_head_options

TOKEN = "${RAY_AUTH_TOKEN:?set it to a random text}"
PROGRAMS_PATH = "/tmp/rlt_pod.pyz"
"""The archive of programs in the container: Docker creates the folder of the configs, as root."""
RENDER_GROUP = "${RENDER_GROUP:?set it to the ID of the group render}"
"""The image may have no group render, and its ID differs between machines."""


def build_compose_file(launch: Launch) -> dict[str, Any]:
    """Build the Compose file. Raises ValueError for a job of several nodes: on one machine they share its devices."""
    if launch.nodes > 1:
        raise ValueError(
            f"spec.cluster.workers: {launch.nodes} workers need {launch.nodes} machines: set replicas to 1, or use "
            "--target docker"
        )
    (group,) = launch.groups
    files = {**launch.files, launch.encoded_programs: launch.programs}
    start = [f"--{name}" if value == "true" else f"--{name}={value}" for name, value in group.start.items()]
    ray = {
        "image": launch.image,
        **_build_service(launch, choose_options(launch, group.shared_memory)),
        "entrypoint": ["ray"],
        "command": ["start", *build_head_options(), *start, "--block"],
        "healthcheck": {
            "test": ["CMD", "ray", "job", "list", f"--address=http://127.0.0.1:{DASHBOARD_PORT}"],
            "interval": "5s",
            "start_period": "120s",
        },
        # The program runs in this container.
        "configs": [{"source": _name_config(path), "target": path} for path in files],
        "stop_grace_period": f"{launch.grace_seconds}s",
    }
    submission = ["ray", "job", "submit", f"--address=http://127.0.0.1:{DASHBOARD_PORT}", "--"]
    job = {
        "image": launch.image,
        "network_mode": "host",
        "user": "${UID:-1000}:${GID:-1000}",
        "environment": _build_environment(launch),
        "volumes": ray["volumes"],
        "entrypoint": [],
        "command": [*submission, "bash", launch.program],
        "depends_on": {"ray": {"condition": "service_healthy"}},
    }
    configs = {_name_config(path): {"content": _escape(text)} for path, text in files.items()}
    return {"name": launch.name, "services": {"ray": ray, "job": job}, "configs": configs}


def _build_service(launch: Launch, options: ContainerOptions) -> dict[str, Any]:
    service: dict[str, Any] = {
        "init": True,
        "network_mode": "host",
        "user": "${UID:-1000}:${GID:-1000}",
        "shm_size": options.shared_memory,
        "ulimits": dict(options.limits),
        "environment": _build_environment(launch),
        "volumes": [{"type": "bind", "source": path, "target": path} for path in launch.mounts],
    }
    if launch.vendor == "nvidia":
        device = {"driver": "nvidia", "count": launch.groups[0].devices, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    optional = {
        "devices": [f"{path}:{path}" for path in options.devices],
        "group_add": [RENDER_GROUP if group == "render" else group for group in options.groups],
        "cap_add": list(options.capabilities),
        "security_opt": ["seccomp=unconfined"] if options.is_unconfined else [],
        "privileged": options.is_privileged,
    }
    return {**service, **{name: value for name, value in optional.items() if value}}


def _build_environment(launch: Launch) -> dict[str, str | None]:
    """Variables without a value are in the environment of the user: variables from Secrets, and the token of Ray."""
    values = {name: _escape(value) for name, value in launch.environment.items()}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN} if launch.has_token else {"RAY_AUTH_MODE": "disabled"}
    return {**values, **token, **dict.fromkeys(launch.inherited)}


def _name_config(path: str) -> str:
    return path.rsplit("/", 1)[-1].replace(".", "-")


def _escape(text: str) -> str:
    """Compose replaces variables in all values."""
    return text.replace("$", "$$")
