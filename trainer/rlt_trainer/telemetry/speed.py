"""Metrics of a step's time and of device utilization: verl's timing_s, timing_per_token_ms and perf. Pure.

Names and denominators are from verl 0.9.1 (verl/trainer/ppo/metric_utils.py, verl/workers/engine_workers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Self

from torch import Tensor

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.telemetry.engine_counters import compute_counter_metrics
from rlt_trainer.telemetry.flops import Shape, count_forward_flops, count_training_flops
from rlt_trainer.telemetry.spans import (
    Span,
    compute_overlap_seconds,
    compute_phase_seconds,
    compute_step_seconds,
)
from rlt_trainer.telemetry.worker_telemetry import GIB, WorkerReport

RESPONSE_TOKEN_PHASES = frozenset({"gen"})
"""Phases whose time per token is counted over response tokens."""
TOKEN_PHASES = frozenset({"old_log_prob", "ref", "teacher", "values", "adv", "update_critic", "update_actor"})
"""Phases whose time per token is counted over all tokens. verl leaves out old_log_prob."""
RELEASE_FIGURES = ("cached", "allocated", "reserved", "unused")
"""The figures of a Release (device_memory.py)."""
MIN_OVERLAP_SHARE = 0.01
"""Minimum share of a step for an overlap to be reported. Clock differences between nodes can cause smaller overlaps."""


@dataclass(frozen=True)
class Work:
    """The sizes that determine the FLOPs of a step."""

    prompt_lengths: Sequence[int]
    response_lengths: Sequence[int]
    """Including observations of an environment."""
    actor: Shape | None
    """None: the architecture is not supported, and no MFU is reported."""
    critic: Shape | None = None
    epochs: int = 1
    """training.ppoEpochs"""
    lora: bool = False
    has_old_log_prob: Sequence[bool] | None = None
    """Whether each sequence had a pass for old log-probabilities. None: all."""

    @classmethod
    def of(
        cls,
        sequences: Sequences,
        actor: Shape | None,
        critic: Shape | None = None,
        *,
        epochs: int = 1,
        lora: bool = False,
        own_rows: Tensor | None = None,
    ) -> Self:
        """Build the work on these sequences. own_rows: those without a pass for old log-probabilities, [S], bool."""
        prompts = sequences.prompt_mask.sum(-1).tolist()
        responses = sequences.response_attention.sum(-1).tolist()
        passed = None if own_rows is None else (~own_rows).tolist()
        return cls(prompts, responses, actor, critic, epochs, lora, passed)

    @property
    def lengths(self) -> list[int]:
        """Lengths of prompt and response together."""
        return [sum(pair) for pair in zip(self.prompt_lengths, self.response_lengths, strict=True)]


def compute_speed_metrics(
    driver: Sequence[Span],
    reports: Sequence[WorkerReport],
    work: Work,
    *,
    devices: int,
    engines: Sequence[WorkerReport] = (),
) -> dict[str, float]:
    """Compute the metrics of one step from the driver's spans and the reports of train workers and rollout workers.

    timing_s/* including timing_s/unaccounted add up to timing_s/step. overlap_s/* ran concurrently.
    """
    seconds = compute_step_seconds(driver)
    step = seconds["step"]
    response_tokens = sum(work.response_lengths)
    tokens = sum(work.lengths)
    per_token = dict.fromkeys(RESPONSE_TOKEN_PHASES, response_tokens) | dict.fromkeys(TOKEN_PHASES, tokens)
    overlap = compute_overlap_seconds(driver, [span for report in (*reports, *engines) for span in report.spans])
    return {
        **{f"timing_s/{phase}": value for phase, value in seconds.items()},
        **{
            f"timing_per_token_ms/{phase}": value * 1000 / per_token[phase]
            for phase, value in seconds.items()
            if per_token.get(phase)
        },
        **{f"overlap_s/{phase}": value for phase, value in overlap.items() if value > MIN_OVERLAP_SHARE * step},
        "perf/unaccounted_share": seconds["unaccounted"] / step,
        "perf/total_num_tokens": float(tokens),
        "perf/time_per_step": step,
        "perf/throughput": tokens / step / devices,
        **_compute_mfu(reports, work),
        **_compute_memory([*reports, *engines]),
        **compute_counter_metrics(each.counters for each in engines),
    }


def _compute_mfu(reports: Sequence[WorkerReport], work: Work) -> dict[str, float]:
    """Compute the share of the ranks' total peak FLOP/s, over the time of the slowest rank."""
    peaks = [report.peak_flops for report in reports]
    if not all(peaks):
        return {}
    peak = sum(filter(None, peaks))
    logits = sum(work.response_lengths)
    flops: dict[str, tuple[str, float]] = {}
    if work.actor:
        training = count_training_flops(work.actor, work.lengths, logits=logits, lora=work.lora)
        flops["perf/mfu/actor"] = ("update_actor", work.epochs * training)
        flops["perf/mfu/actor_infer"] = ("old_log_prob", _count_old_log_prob_flops(work.actor, work))
    if work.critic:
        training = count_training_flops(work.critic, work.lengths, logits=0)
        flops["perf/mfu/critic"] = ("update_critic", work.epochs * training)
    utilization = {}
    for name, (phase, count) in flops.items():
        seconds = max(compute_phase_seconds(report.spans, phase) for report in reports)
        if seconds > 0:
            utilization[name] = count / seconds / peak
    return utilization


def _count_old_log_prob_flops(shape: Shape, work: Work) -> float:
    passed = work.has_old_log_prob or [True] * len(work.lengths)
    lengths = list(compress(work.lengths, passed))
    return count_forward_flops(shape, lengths, logits=sum(compress(work.response_lengths, passed)))


def _compute_memory(reports: Sequence[WorkerReport]) -> dict[str, float]:
    """Return the maximum over the ranks."""
    releases = [(before, release) for report in reports for before, release in report.releases.items()]
    values: dict[str, list[float | None]] = {
        "perf/max_memory_allocated_gb": [report.memory.max_allocated for report in reports],
        "perf/max_memory_reserved_gb": [report.memory.max_reserved for report in reports],
    }
    for before, release in releases:
        for figure in RELEASE_FIGURES:
            values.setdefault(f"perf/release_{figure}_gb/{before}", []).append(getattr(release, figure) / GIB)
    known = {name: [value for value in each if value is not None] for name, each in values.items()}
    return {
        **{name: max(each) for name, each in known.items() if each},
        "perf/cpu_memory_used_gb": max(report.memory.cpu_used for report in reports),
    }
