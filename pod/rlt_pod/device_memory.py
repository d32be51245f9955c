"""The memory of a pod's NVIDIA GPUs, by nvidia-smi. The standard library alone: Ray sends the functions to workers."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

QUERY_TIMEOUT_S = 10.0
MIB = 2**20
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Use:
    """Memory in use, and its limit, in bytes."""

    used: int
    total: int

    @property
    def share(self) -> float:
        """The share of the limit."""
        return self.used / self.total


def measure_devices() -> list[Use]:
    """Measure the NVIDIA GPUs of the pod; empty without nvidia-smi."""
    if not shutil.which(NVIDIA_SMI[0]):
        return []
    try:
        done = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_nvidia_smi(done.stdout)


def parse_nvidia_smi(output: str) -> list[Use]:
    """Parse the output of NVIDIA_SMI, in MiB. Values that a GPU does not have are "[N/A]"."""
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    return [
        Use(int(row[0]) * MIB, int(row[1]) * MIB)
        for row in rows
        if len(row) == 2 and all(cell.isdecimal() and int(cell) for cell in row)
    ]
