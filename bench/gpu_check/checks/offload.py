"""Offload of the reference and of the optimizer's state: the memory that it frees between uses, and its time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gpu_check.figures import Figure
from gpu_check.models import build_shape, write_model
from gpu_check.runs import build_config, build_sequences, train_worker
from gpu_check.settings import Settings

GIB = 2**30
MAX_ERROR = 0.03
"""Of the memory that an offload frees, relative to the bytes of what it moves."""


@dataclass(frozen=True)
class Case:
    """A setting, and the bytes that it moves for each weight."""

    title: str
    training: Mapping[str, Any]
    bytes_of_a_weight: int


CASES = (
    Case("nothing", {"reference": {"paramOffload": False}}, 0),
    Case("reference in bfloat16", {"reference": {"paramOffload": True}}, 2),
    Case("moments of AdamW", {"reference": {"paramOffload": False}, "fsdp": {"optimizerOffload": True}}, 8),
)
"""The first one is what the others are compared with."""


@dataclass(frozen=True)
class Measured:
    """Memory in bytes, and times in seconds."""

    weights: int
    between: int
    peak: int
    reference: float
    step: float


def run(settings: Settings) -> Iterator[Figure]:
    """Measure each setting. On CPUs nothing moves: a rehearsal only runs the steps."""
    model = write_model(build_shape(settings.choose("0.6B", "tiny")), settings.folder / "model", settings.device)
    found = [measure(settings, model, case) for case in CASES]
    plain = found[0]
    for case, each in zip(CASES, found, strict=True):
        yield Figure(f"offload of {case.title}: a pass of the reference", each.reference, "s")
        yield Figure(f"offload of {case.title}: an optimizer step", each.step, "s")
        if settings.rehearse or case is CASES[0]:
            continue
        moved = case.bytes_of_a_weight * each.weights
        freed = plain.between - each.between
        yield Figure(
            f"offload of {case.title}: memory that it frees between uses",
            freed / GIB,
            "GiB",
            passed=abs(freed / moved - 1) < MAX_ERROR,
            note=f"{moved / GIB:.2f} GiB are moved; at most {100 * MAX_ERROR:.0f} % apart",
        )
        yield Figure(f"offload of {case.title}: peak of a step, lower by", (plain.peak - each.peak) / GIB, "GiB")


def measure(settings: Settings, model: str, case: Case) -> Measured:
    """Compute log-probabilities of the reference, and take a step, twice. The first ones start the kernels."""
    config = build_config(
        settings.device,
        settings.folder / case.title.replace(" ", "-"),
        model,
        algorithm={"klLossCoef": 0.001},
        training=dict(case.training),
    )
    sequences = build_sequences(rows=settings.choose(16, 2), length=settings.choose(512, 16))
    on_gpu = settings.device == "cuda"
    with train_worker(config) as worker:
        for _ in range(2):
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            times = [time.perf_counter()]
            worker.ref_log_probs(sequences)  # both results wait for the device
            times.append(time.perf_counter())
            worker.supervised_step(sequences, int(sequences.response_mask.sum()))
            times.append(time.perf_counter())
        return Measured(
            sum(each.numel() for each in worker._actor.model.parameters()),
            torch.cuda.memory_allocated() if on_gpu else 0,
            torch.cuda.max_memory_allocated() if on_gpu else 0,
            times[1] - times[0],
            times[2] - times[1],
        )
