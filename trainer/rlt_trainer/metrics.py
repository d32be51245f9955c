"""A step's numbers under verl's names. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlt_trainer.policy.update_result import UpdateResult
from rlt_trainer.sequences import Sequences


def rollout_metrics(
    sequences: Sequences, rewards: Tensor, advantages: Tensor, max_response_length: int
) -> dict[str, float]:
    """Rewards [B], advantages [B, T] and lengths of a step's responses."""
    prompt_lengths, response_lengths = sequences.prompt_mask.sum(-1), sequences.response_mask.sum(-1)
    return {
        **_spread("critic/rewards", rewards),
        **_spread("critic/advantages", advantages[sequences.response_mask]),
        **_spread("response_length", response_lengths),
        "response_length/clip_ratio": _mean(response_lengths >= max_response_length),
        **_spread("prompt_length", prompt_lengths),
    }


def policy_metrics(mask: Tensor, *, log_probs: Tensor, rollout_log_probs: Tensor, entropy: Tensor) -> dict[str, float]:
    """How sure the policy is, and how far its probabilities are from those of the rollout engine: all [B, T].

    verl's FAQ calls training/rollout_probs_diff_mean below 0.005 healthy and above 0.01 bad.
    """
    difference = (log_probs.exp() - rollout_log_probs.exp()).abs()[mask]
    return {
        "actor/entropy": _mean(entropy[mask]),
        "training/rollout_probs_diff_mean": _mean(difference),
        "training/rollout_probs_diff_max": float(difference.max()),
    }


def update_metrics(steps: Sequence[Sequence[UpdateResult]], learning_rate: float) -> dict[str, float]:
    """The optimizer steps of one training step, each as its ranks' results: the mean over the optimizer steps.

    A gradient norm that is not finite stays so in the mean, and is counted in actor/skipped_updates.
    """
    names = steps[0][0].shares
    return {
        **{name: sum(rank.shares[name] for ranks in steps for rank in ranks) / len(steps) for name in names},
        "actor/grad_norm": sum(ranks[0].grad_norm for ranks in steps) / len(steps),
        "actor/skipped_updates": float(sum(ranks[0].skipped for ranks in steps)),
        "actor/lr": learning_rate,
    }


def speed_metrics(timing: dict[str, float], sequences: Sequences, ranks: int) -> dict[str, float]:
    """Seconds by phase, "step" among them, and throughput in prompt and response tokens a second and rank."""
    tokens = int(sequences.prompt_mask.sum() + sequences.response_attention.sum())
    seconds = timing["step"]
    accounted = sum(value for phase, value in timing.items() if phase != "step")
    return {
        **{f"timing_s/{phase}": value for phase, value in timing.items()},
        "timing_s/unaccounted": max(0.0, seconds - accounted),
        "perf/total_num_tokens": float(tokens),
        "perf/time_per_step": seconds,
        "perf/throughput": tokens / seconds / ranks,
    }


def _spread(name: str, values: Tensor) -> dict[str, float]:
    return {f"{name}/mean": _mean(values), f"{name}/max": float(values.max()), f"{name}/min": float(values.min())}


def _mean(values: Tensor) -> float:
    return float(torch.mean(values.double()))
