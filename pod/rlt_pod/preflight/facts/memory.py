"""The largest memory use of a pod while a program runs: samples of its accelerators and of its container."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlt_pod.device_memory import Use, measure_devices
from rlt_pod.preflight.result import Result, format_gib, format_pods, passed, warned

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERVAL_S = 1.0
MAX_SHARE = 0.95
"""Above this share of the memory, a longer response or another batch may not fit."""
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.stat"), Path("/sys/fs/cgroup/memory.max"), ("anon", "shmem")),
    (
        Path("/sys/fs/cgroup/memory/memory.stat"),
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        ("total_rss", "total_shmem"),
    ),
)
"""Statistics, limit, and the parts that the kernel cannot drop, in cgroup v2 and v1:
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files."""


@dataclass(frozen=True)
class Peak:
    """The largest use in a pod. None: not known."""

    pod: str
    device: Use | None = None
    """Of the fullest accelerator."""
    host: Use | None = None


class MemoryWatch:
    """Samples the memory of this pod until it is read."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._device: Use | None = None
        self._host: Use | None = None
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def end(self, pod: str) -> Peak:
        """End the samples and return the largest ones."""
        self._ended.set()
        self._thread.join()
        return Peak(pod, self._device, self._host)

    def _sample(self) -> None:
        while True:
            self._device = find_fullest([*([self._device] if self._device else []), *measure_devices()])
            host = measure_container()
            self._host = find_fullest([each for each in (self._host, host) if each])
            if self._ended.wait(self._interval_s):
                return


def find_fullest(uses: Sequence[Use]) -> Use | None:
    """Return the use with the largest share. None: there is none."""
    return max(uses, key=lambda each: each.share, default=None)


def measure_container() -> Use | None:
    """Measure the container's memory that the kernel cannot drop. None: it has no limit."""
    for statistics, limit, names in CGROUPS:
        if statistics.exists() and limit.exists():
            return parse_cgroup(statistics.read_text(), limit.read_text(), names)
    return None


def parse_cgroup(statistics: str, limit: str, names: Sequence[str]) -> Use | None:
    """Parse a memory.stat and the file with the limit. None: there is no limit, which v1 writes as a huge number."""
    values = dict(line.split() for line in statistics.splitlines() if len(line.split()) == 2)
    if not limit.strip().isdecimal() or int(limit) >= 2**60:
        return None
    return Use(sum(int(values.get(name, 0)) for name in names), int(limit))


def check_peaks(peaks: Sequence[Peak]) -> list[Result]:
    """Compare the peaks of all pods with their limits."""
    devices = {each.pod: each.device for each in peaks if each.device}
    hosts = {each.pod: each.host for each in peaks if each.host}
    return [
        *_check(
            "peak-memory",
            devices,
            "accelerator",
            "Reduce the micro-batches, the length of the responses or the engine's share of the memory.",
        ),
        *_check("peak-host-memory", hosts, "container", "Raise resources.memory, or offload less to the host."),
    ]


def _check(name: str, uses: dict[str, Use], owner: str, remedy: str) -> list[Result]:
    if not uses:
        return []
    fullest = max(uses.values(), key=lambda each: each.share)
    value = format_gib(fullest.used)
    limit = format_gib(fullest.total)
    full = {pod for pod, use in uses.items() if use.share > MAX_SHARE}
    if full:
        message = f"The step uses nearly all memory of the {owner} in {format_pods(full)}: a longer step may not fit."
        return [warned(name, value, message, remedy, full, threshold=limit)]
    return [passed(name, value, f"The step fits into the memory of the {owner}.", threshold=limit)]
