"""How the steps of a Slurm job run in containers: Apptainer, Enroot with Pyxis, Docker, Podman, or none."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal, get_args

from rlt_core.targets.container import build_run_options, choose_options
from rlt_core.targets.launch import Launch
from rlt_core.targets.shell import build_environment_options

ContainerRuntime = Literal["none", "apptainer", "enroot", "docker", "podman"]
RUNTIMES: tuple[ContainerRuntime, ...] = get_args(ContainerRuntime)
SLURM_VARIABLES = (
    *("SLURM_NODEID", "SLURMD_NODENAME", "SLURM_JOB_ID", "RLT_HEAD", "RLT_PORT"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
)
"""Variables of the job's steps that a container of Docker does not inherit. Slurm sets those with the devices of the
job: https://slurm.schedmd.com/gres.html"""


@dataclass(frozen=True)
class Wrapping:
    """Words for the shell around the commands of a step."""

    run: tuple[str, ...] = ()
    """Before the command that runs Ray on a node."""
    exec: tuple[str, ...] = ()
    """Before a command on the head."""
    step: tuple[str, ...] = ()
    """Options of srun."""
    prepare: tuple[str, ...] = ()
    """Lines of the script before the first step."""
    ready: str = ""
    """A line of the script that waits until `exec` has a container."""
    inherits_environment: bool = True
    """Whether containers have the environment of the script."""


def wrap_steps(launch: Launch, runtime: ContainerRuntime) -> Wrapping:
    """Build the words for a container runtime. The folders of the job have the same paths in the container."""
    if runtime == "apptainer":
        return _wrap_apptainer(launch)
    if runtime == "enroot":
        return _wrap_enroot(launch)
    return Wrapping() if runtime == "none" else _wrap_docker(launch, runtime)


def _wrap_apptainer(launch: Launch) -> Wrapping:
    """Apptainer shares devices, /tmp, /dev/shm, user and environment: https://apptainer.org/docs/user/latest/"""
    local = launch.image.startswith("/")
    image = launch.image if local else f"{launch.storage}/images/{re.sub(r'[^A-Za-z0-9.-]+', '-', launch.image)}.sif"
    devices = {"nvidia": ["--nv"], "amd": ["--rocm"]}.get(launch.vendor, [])
    binds = [f"--bind={shlex.quote(path)}" for path in launch.mounts]
    command = ("apptainer exec", *devices, *binds, '"$image"')
    folder = shlex.quote(f"{launch.storage}/images")
    source = shlex.quote(f"docker://{launch.image}")
    pull = [f"mkdir -p {folder}", f'[ -s "$image" ] || apptainer pull "$image" {source}']
    return Wrapping(run=command, exec=command, prepare=(f"image={shlex.quote(image)}", *([] if local else pull), ""))


def _wrap_enroot(launch: Launch) -> Wrapping:
    """Pyxis adds options to srun, and separates the registry with #: https://github.com/NVIDIA/pyxis"""
    first, slash, rest = launch.image.partition("/")
    is_registry = bool(slash) and (first == "localhost" or "." in first or ":" in first)
    image = f"{first}#{rest}" if is_registry and not launch.image.startswith("/") else launch.image
    mounts = ",".join(f"{path}:{path}" for path in launch.mounts)
    return Wrapping(step=(f"--container-image={shlex.quote(image)}", f"--container-mounts={shlex.quote(mounts)}"))


def _wrap_docker(launch: Launch, runtime: Literal["docker", "podman"]) -> Wrapping:
    """In the foreground, so that the signals of srun reach Ray."""
    options = choose_options(launch, max(group.shared_memory for group in launch.groups))
    run = [
        f"{runtime} run --rm --init",
        '--name="$container"',
        '--user="$(id -u):$(id -g)"' if runtime == "docker" else "--userns=keep-id",
        *build_run_options(options, runtime=runtime, vendor=launch.vendor),
        *(f"--volume={shlex.quote(f'{path}:{path}')}" for path in launch.mounts),
        *build_environment_options(launch),
        *(f"--env={name}" for name in SLURM_VARIABLES),
        '--entrypoint=""',
        shlex.quote(launch.image),
    ]
    return Wrapping(
        run=(" \\\n    ".join(run),),
        exec=(f'{runtime} exec "$container"',),
        ready='until on_head true 2> /dev/null || ! kill -0 "$nodes_step"; do sleep 1; done',
        prepare=(f'container={launch.name}-{launch.id}-"$SLURM_JOB_ID"', ""),
        inherits_environment=False,
    )
