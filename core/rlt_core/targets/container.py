"""Options of a container for accelerators, RDMA and shared memory, as Docker, Podman and Compose have them.

AMD's devices are from ROCm's documentation and verl's guide for AMD clusters:
https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html
"""

from __future__ import annotations

from dataclasses import dataclass

from rlt_core.fabric.settings import GROUP_IDS
from rlt_core.targets.launch import Launch

AMD_DEVICES = ("/dev/kfd", "/dev/dri")
RDMA_DEVICES = ("/dev/infiniband",)
AMD_GROUPS = ("video", "render")
LIMITS = {"memlock": -1, "stack": 67108864}
"""NCCL and RDMA pin memory; 64 MiB of stack is NVIDIA's recommendation for its PyTorch images."""
SPARE_NODE_FILES = 65536
"""Open files: Ray uses a connection for each pair of processes."""


@dataclass(frozen=True)
class ContainerOptions:
    """What a container gets in addition to image, environment and mounts."""

    devices: tuple[str, ...]
    groups: tuple[str, ...]
    """Names or IDs of supplementary groups."""
    capabilities: tuple[str, ...]
    is_unconfined: bool
    is_privileged: bool
    limits: dict[str, int]
    shared_memory: int
    """Bytes of /dev/shm."""


def choose_options(launch: Launch, shared_memory: int) -> ContainerOptions:
    """Choose the options of a container. The spec alone gives privileges: spec.security."""
    rdma = RDMA_DEVICES if launch.is_rdma else ()
    amd = AMD_DEVICES if launch.vendor == "amd" else ()
    names = AMD_GROUPS if launch.vendor == "amd" else ()
    known = {GROUP_IDS.get(name) for name in names}
    return ContainerOptions(
        devices=(*amd, *rdma),
        groups=(*names, *(str(group) for group in launch.groups_of_user if group not in known)),
        capabilities=launch.capabilities,
        is_unconfined=launch.is_unconfined,
        is_privileged=launch.is_privileged,
        limits={**LIMITS, "nofile": SPARE_NODE_FILES},
        shared_memory=shared_memory,
    )


def build_run_options(options: ContainerOptions, *, runtime: str, vendor: str) -> list[str]:
    """The options of `docker run` or `podman run`, as words for the shell."""
    words = ["--network=host", f"--shm-size={options.shared_memory}"]
    words += [f"--ulimit={name}={value}" for name, value in options.limits.items()]
    if vendor == "nvidia":
        words.append("--gpus=all" if runtime == "docker" else "--device=nvidia.com/gpu=all")
    words += [f"--device={device}" for device in options.devices]
    words += [f"--group-add={_format_group(group)}" for group in options.groups]
    words += [f"--cap-add={capability}" for capability in options.capabilities]
    words += ["--security-opt=seccomp=unconfined"] if options.is_unconfined else []
    words += ["--privileged"] if options.is_privileged else []
    return words


def _format_group(group: str) -> str:
    """The ID of render differs between machines, and the image may have no group of this name."""
    return '"$(getent group render | cut -d: -f3)"' if group == "render" else group
