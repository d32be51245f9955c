"""Telemetry of a rank: spans, memory, and profiles of selected steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from rlt_api.blocks.operations import Profiler
from rlt_trainer.telemetry.device_memory import Release, release_memory
from rlt_trainer.telemetry.peak_flops import find_peak_flops
from rlt_trainer.telemetry.spans import Span
from rlt_trainer.telemetry.stopwatch import Stopwatch

GIB = 1024**3


@dataclass(frozen=True)
class Memory:
    """Memory of a rank in GiB (verl's perf/max_memory_allocated_gb, max_memory_reserved_gb, cpu_memory_used_gb)."""

    cpu_used: float
    """Memory in use on the node, by all processes."""
    max_allocated: float | None = None
    """The step's peak of tensors on the device. None on a CPU."""
    max_reserved: float | None = None
    """The step's peak of memory reserved by torch's allocator. None on a CPU."""


@dataclass(frozen=True)
class WorkerReport:
    """The telemetry of one rank for one step."""

    spans: list[Span]
    memory: Memory
    peak_flops: float | None
    """Peak FLOP/s of the device in the data type of the computation. None if it is not known."""
    releases: Mapping[str, Release] = field(default_factory=dict)
    """The last release of memory before an engine uses the device. Empty on a CPU."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """What an engine's counters have added in the step, by vLLM's names (`engine_counters`)."""


class WorkerTelemetry:
    """Measures one rank. Results are complete at the end of a span, because ranks return them on the CPU."""

    def __init__(
        self,
        rank: int,
        *,
        engine: int | None = None,
        device: torch.device,
        dtype: torch.dtype,
        profiles: Path,
        profiler: Profiler | None = None,
    ) -> None:
        self._rank = rank
        self._device = device
        self._watch = Stopwatch(rank, engine=engine)
        self._profiles = Path(profiler.directory) if profiler and profiler.directory else profiles
        self._profiled = frozenset(profiler.steps if profiler else ())
        self._profile: profile | None = None
        self._releases: dict[str, Release] = {}
        on_gpu = device.type == "cuda"
        self._peak = find_peak_flops(torch.cuda.get_device_name(device)) if on_gpu and dtype == torch.bfloat16 else None

    def begin(self, step: int) -> None:
        """Start a step. New measurements belong to it."""
        self._watch.step = step
        self._releases = {}
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        if step in self._profiled:
            on_gpu = [ProfilerActivity.CUDA] if self._device.type == "cuda" else []
            self._profile = profile(activities=[ProfilerActivity.CPU, *on_gpu])
            self._profile.start()

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Measure the block as `phase` of the step, in the spans and in the profile."""
        with self._watch.measure(phase), record_function(f"rlt::{phase}"):
            yield

    def release_memory(self, before: str) -> None:
        """Release the unused memory of the device `before` an engine uses it."""
        if release := release_memory(self._device):
            self._releases[before] = release

    def end(self) -> WorkerReport:
        """End the step and return its report. A profile is written to step-N-rank-R.json.gz, for Perfetto."""
        spans = self._watch.take()
        if self._profile is not None:
            self._profile.stop()
            self._profiles.mkdir(parents=True, exist_ok=True)
            file = self._profiles / f"step-{self._watch.step}-rank-{self._rank}.json.gz"
            self._profile.export_chrome_trace(str(file))
            self._profile = None
        return WorkerReport(spans, self._measure_memory(), self._peak, self._releases)

    def _measure_memory(self) -> Memory:
        used = psutil.virtual_memory().used / GIB
        if self._device.type != "cuda":
            return Memory(used)
        allocated = torch.cuda.max_memory_allocated(self._device)
        reserved = torch.cuda.max_memory_reserved(self._device)
        return Memory(used, allocated / GIB, reserved / GIB)
