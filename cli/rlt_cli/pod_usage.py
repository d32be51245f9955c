"""CPU, memory and GPU usage of a pod: parsed from the output of pod_probe.py, and as a table. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlt_cli.table import format_table

NO_GPU_CODES = (6, 9)
"""Exit codes of nvidia-smi in a pod without a GPU or its driver: nvidia-smi(1), RETURN VALUE."""
MIB = 2**20
GIB = 2**30

COLUMNS = ("POD", "GROUP", "CPU", "MEMORY", "/DEV/SHM", "GPU", "GPU USE", "GPU MEMORY", "REASON")


@dataclass(frozen=True)
class GpuUsage:
    """The use of one GPU. None: the GPU does not report it, such as one in MIG mode."""

    index: str
    utilization: float | None
    """Percentage of the last second in which a kernel ran."""
    memory: int | None
    """In bytes, as the next one."""
    memory_limit: int | None


@dataclass(frozen=True)
class PodUsage:
    """The use of a pod. None: not known, or for a limit that there is none. Sizes are in bytes."""

    pod: str
    group: str
    """The worker group, or `head`."""
    cpu: float | None = None
    """In cores, as the next one."""
    cpu_limit: float | None = None
    memory: int | None = None
    """The working set."""
    memory_limit: int | None = None
    shared_memory: int | None = None
    shared_memory_limit: int | None = None
    gpus: tuple[GpuUsage, ...] = ()
    reason: str | None = None
    """Why the usage, or the GPUs' usage, is not known."""

    def to_json(self) -> dict[str, Any]:
        """The use as data, with keys as in the API."""
        return {
            "pod": self.pod,
            "group": self.group,
            "cpu": self.cpu,
            "cpuLimit": self.cpu_limit,
            "memory": self.memory,
            "memoryLimit": self.memory_limit,
            "sharedMemory": self.shared_memory,
            "sharedMemoryLimit": self.shared_memory_limit,
            "gpus": [
                {
                    "index": gpu.index,
                    "utilization": gpu.utilization,
                    "memory": gpu.memory,
                    "memoryLimit": gpu.memory_limit,
                }
                for gpu in self.gpus
            ],
            "reason": self.reason,
        }


def parse_probe(pod: str, group: str, output: str) -> PodUsage:
    """Parse the output of pod_probe.py. An output that cannot be parsed is the reason."""
    try:
        found = json.loads(output)
        query = found.pop("gpus")
        gpus, reason = _parse_gpus(**query) if query else ((), None)
        return PodUsage(pod=pod, group=group, gpus=gpus, reason=reason, **found)
    except (ValueError, LookupError, TypeError, AttributeError):
        return PodUsage(pod=pod, group=group, reason=f"unexpected output: {output.strip()[-200:]}")


def _parse_gpus(program: str, code: int | None, output: str) -> tuple[tuple[GpuUsage, ...], str | None]:
    """The GPUs, or why they are not known."""
    if code is None:
        return (), f"{program} does not answer"
    if program == "nvidia-smi" and code in NO_GPU_CODES:
        return (), None
    parse = parse_nvidia_smi if program == "nvidia-smi" else parse_rocm_smi
    gpus = () if code else parse(output)
    lines = output.strip().splitlines() or [f"exit code {code}, no output"]
    return gpus, None if gpus else f"{program}: {lines[-1][:200]}"


def parse_nvidia_smi(output: str) -> tuple[GpuUsage, ...]:
    """Parse `nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits`.

    Memory is in MiB. A field that the GPU does not report is `[N/A]` or `[Not Supported]`.
    """
    rows = ([cell.strip() for cell in line.split(",")] for line in output.splitlines())
    return tuple(
        GpuUsage(index=index, utilization=_number(use), memory=_scale(used, MIB), memory_limit=_scale(total, MIB))
        for index, use, used, total in (row for row in rows if len(row) == 4)
    )


def parse_rocm_smi(output: str) -> tuple[GpuUsage, ...]:
    """Parse `rocm-smi --showuse --showmeminfo vram --json`: card -> name -> text. Warnings may precede the object."""
    try:
        cards: dict[str, Any] = json.loads(output[output.index("{") :])
    except ValueError:
        return ()
    return tuple(
        GpuUsage(
            index=name.removeprefix("card"),
            utilization=_number(str(card.get("GPU use (%)"))),
            memory=_scale(str(card.get("VRAM Total Used Memory (B)")), 1),
            memory_limit=_scale(str(card.get("VRAM Total Memory (B)")), 1),
        )
        for name, card in cards.items()
        if name.startswith("card") and isinstance(card, dict)
    )


def format_usage(pods: Iterable[PodUsage], width: int | None = None) -> str:
    """A table with a row for each GPU, and for each pod without GPUs."""
    return format_table(COLUMNS, [row for pod in pods for row in _build_rows(pod)], width)


def _build_rows(pod: PodUsage) -> list[Sequence[object]]:
    of_pod = (
        pod.pod,
        pod.group,
        _format_part(pod.cpu, pod.cpu_limit, 1, ""),
        _format_part(pod.memory, pod.memory_limit, GIB, " GiB"),
        _format_part(pod.shared_memory, pod.shared_memory_limit, GIB, " GiB"),
    )
    gpus: list[tuple[str | None, str | None, str | None]] = [
        (
            gpu.index,
            None if gpu.utilization is None else f"{gpu.utilization:.0f} %",
            _format_part(gpu.memory, gpu.memory_limit, GIB, " GiB"),
        )
        for gpu in pod.gpus
    ] or [(None, None, None)]
    empty = (None,) * len(of_pod)
    return [(*(empty if row else of_pod), *gpu, None if row else pod.reason) for row, gpu in enumerate(gpus)]


def _format_part(used: float | None, limit: float | None, scale: int, unit: str) -> str | None:
    if used is None:
        return None
    whole = "" if limit is None else f" / {limit / scale:.1f}"
    return f"{used / scale:.1f}{whole}{unit}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _scale(text: str, factor: int) -> int | None:
    number = _number(text)
    return None if number is None else round(number * factor)
