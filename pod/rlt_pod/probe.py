"""The program that measures the use of a pod (`rlt top` runs it with `python3 -c`). It prints one JSON object.

Without its own control group, as in some sandboxes, CPU and memory are None. The program has no imports outside of
the standard library (Python 3.8 or later), because it runs in the image of the job.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

CGROUP = "/sys/fs/cgroup"
SHARED_MEMORY = "/dev/shm"
INTERVAL_S = 0.5
"""Time between the two measurements of the CPU time."""
GPU_TIMEOUT_S = 10
UNLIMITED = 2**60
"""From this value on, a memory limit of cgroup v1 means that there is none."""
TOOLS = (
    (
        *("nvidia-smi", "--format=csv,noheader,nounits"),
        "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    ),
    ("rocm-smi", "--showuse", "--showmeminfo", "vram", "--json"),
)
"""The programs that report the use of GPUs."""


def measure(root: Path) -> dict[str, object]:
    """Measure this pod. `root`: the mount point of the control groups. CPU in cores, memory in bytes."""
    start = time.monotonic()
    used = read_cpu_time(root)
    time.sleep(INTERVAL_S)
    now = time.monotonic()
    later = read_cpu_time(root)
    shared = os.statvfs(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else None
    return {
        "cpu": None if used is None or later is None else (later - used) / (now - start),
        "cpu_limit": read_cpu_limit(root),
        "memory": read_memory(root),
        "memory_limit": read_memory_limit(root),
        "shared_memory": (shared.f_blocks - shared.f_bfree) * shared.f_frsize if shared else None,
        "shared_memory_limit": shared.f_blocks * shared.f_frsize if shared else None,
        "gpus": query_gpus(),
    }


def read_cpu_time(root: Path) -> float | None:
    """The CPU time of the container, in seconds (cgroup v2, then v1)."""
    fields = read_fields(root / "cpu.stat")
    if "usage_usec" in fields:
        return fields["usage_usec"] / 1e6
    usage = read_number(root / "cpuacct/cpuacct.usage")
    return None if usage is None else usage / 1e9


def read_cpu_limit(root: Path) -> float | None:
    """The CPU limit in cores. None: there is no limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    v1_quota = read_number(root / "cpu/cpu.cfs_quota_us")
    v1_period = read_number(root / "cpu/cpu.cfs_period_us")
    return v1_quota / v1_period if v1_quota and v1_period and v1_quota > 0 else None


def read_memory(root: Path) -> int | None:
    """The working set: the used memory without page cache that can be reclaimed, as in `kubectl top`."""
    v2 = read_number(root / "memory.current")
    if v2 is not None:
        return max(0, v2 - read_fields(root / "memory.stat").get("inactive_file", 0))
    v1 = read_number(root / "memory/memory.usage_in_bytes")
    if v1 is None:
        return None
    return max(0, v1 - read_fields(root / "memory/memory.stat").get("total_inactive_file", 0))


def read_memory_limit(root: Path) -> int | None:
    """The memory limit. None: there is no limit."""
    limit = read_number(root / "memory.max")
    if limit is None:
        limit = read_number(root / "memory/memory.limit_in_bytes")
    return None if limit is None or limit >= UNLIMITED else limit


def read_number(file: Path) -> int | None:
    """The number in a file. None: the file does not exist, or has another text."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def read_fields(file: Path) -> dict[str, int]:
    """The lines `name number` of a file."""
    try:
        return {name: int(value) for name, value in (line.split() for line in file.read_text().splitlines())}
    except (OSError, ValueError):
        return {}


def query_gpus() -> dict[str, object] | None:
    """The output of the first program in TOOLS that exists: program, exit code, text."""
    for command in TOOLS:
        if shutil.which(command[0]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=GPU_TIMEOUT_S, check=False)
            except (OSError, subprocess.TimeoutExpired):
                return {"program": command[0], "code": None, "output": ""}
            return {"program": command[0], "code": done.returncode, "output": done.stdout or done.stderr}
    return None


if __name__ == "__main__":
    print(json.dumps(measure(Path(CGROUP))))
