"""Where a step's time went, and how much of the devices was used: verl's timing_s, timing_per_token_ms and perf. Pure.

Names and denominators as in verl 0.9.1 (verl/trainer/ppo/metric_utils.py, verl/workers/engine_workers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.telemetry.flops import Shape, forward_flops, training_flops
from rlt_trainer.telemetry.spans import Span, overlap_seconds, step_seconds, whole_seconds
from rlt_trainer.telemetry.worker_telemetry import WorkerReport

BY_RESPONSE_TOKEN = frozenset({"gen"})
BY_TOKEN = frozenset({"old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"})
"""verl leaves old_log_prob out."""
CLOCKS_DIFFER = 0.01
"""Less overlap than this share of a step is not told: the clocks of two nodes may make it."""


@dataclass(frozen=True)
class Work:
    """What a step computed with."""

    prompt_lengths: Sequence[int]
    response_lengths: Sequence[int]
    """Observations of an environment included."""
    actor: Shape | None
    """None: its arithmetic is not known, and no MFU is told."""
    critic: Shape | None = None
    epochs: int = 1
    """training.ppoEpochs"""
    lora: bool = False

    @classmethod
    def of(
        cls,
        sequences: Sequences,
        actor: Shape | None,
        critic: Shape | None = None,
        *,
        epochs: int = 1,
        lora: bool = False,
    ) -> Self:
        """The work on these sequences."""
        prompts, responses = sequences.prompt_mask.sum(-1).tolist(), sequences.response_attention.sum(-1).tolist()
        return cls(prompts, responses, actor, critic, epochs, lora)

    @property
    def lengths(self) -> list[int]:
        """Of whole sequences."""
        return [sum(pair) for pair in zip(self.prompt_lengths, self.response_lengths, strict=True)]


def speed_metrics(
    driver: Sequence[Span], reports: Sequence[WorkerReport], work: Work, *, engines: Sequence[WorkerReport] = ()
) -> dict[str, float]:
    """The step that `driver` measured, with the reports of the training ranks, and of engines that are none of them.

    timing_s/* and timing_s/unaccounted add up to timing_s/step; overlap_s/* ran beside them.
    """
    seconds = step_seconds(driver)
    whole = seconds["step"]
    response_tokens, tokens = sum(work.response_lengths), sum(work.lengths)
    per_token = dict.fromkeys(BY_RESPONSE_TOKEN, response_tokens) | dict.fromkeys(BY_TOKEN, tokens)
    overlap = overlap_seconds(driver, [span for report in (*reports, *engines) for span in report.spans])
    devices = len(reports) + len(engines)
    return {
        **{f"timing_s/{phase}": value for phase, value in seconds.items()},
        **{
            f"timing_per_token_ms/{phase}": value * 1000 / per_token[phase]
            for phase, value in seconds.items()
            if per_token.get(phase)
        },
        **{f"overlap_s/{phase}": value for phase, value in overlap.items() if value > CLOCKS_DIFFER * whole},
        "perf/unaccounted_share": seconds["unaccounted"] / whole,
        "perf/total_num_tokens": float(tokens),
        "perf/time_per_step": whole,
        "perf/throughput": tokens / whole / devices,
        **_mfu(reports, work),
        **_memory([*reports, *engines]),
    }


def _mfu(reports: Sequence[WorkerReport], work: Work) -> dict[str, float]:
    """Share of the ranks' peak, in the time of the slowest of them."""
    peaks = [report.peak_flops for report in reports]
    if not all(peaks):
        return {}
    peak = sum(filter(None, peaks))
    logits = sum(work.response_lengths)
    flops: dict[str, tuple[str, float]] = {}
    if work.actor:
        training = training_flops(work.actor, work.lengths, logits=logits, lora=work.lora)
        flops["perf/mfu/actor"] = ("update_actor", work.epochs * training)
        flops["perf/mfu/actor_infer"] = ("old_log_prob", forward_flops(work.actor, work.lengths, logits=logits))
    if work.critic:
        flops["perf/mfu/critic"] = ("update_critic", work.epochs * training_flops(work.critic, work.lengths, logits=0))
    utilization = {}
    for name, (phase, count) in flops.items():
        seconds = max(whole_seconds(report.spans, phase) for report in reports)
        if seconds > 0:
            utilization[name] = count / seconds / peak
    return utilization


def _memory(reports: Sequence[WorkerReport]) -> dict[str, float]:
    """The fullest of them."""
    values = {
        "perf/max_memory_allocated_gb": [report.memory.max_allocated for report in reports],
        "perf/max_memory_reserved_gb": [report.memory.max_reserved for report in reports],
    }
    known = {name: [value for value in each if value is not None] for name, each in values.items()}
    return {
        **{name: max(each) for name, each in known.items() if each},
        "perf/cpu_memory_used_gb": max(report.memory.cpu_used for report in reports),
    }
