"""The metrics of a step under verl's names. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlt_trainer.algorithms.masking import select
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.driver.validation_metrics import group_rows
from rlt_trainer.sandboxes.pool import Statistics


def compute_rollout_metrics(
    sequences: Sequences, batch: RolloutBatch, rewards: Tensor, advantages: Tensor, max_response_length: int
) -> dict[str, float]:
    """Metrics of scores and rewards [B], NaN if one failed, advantages [S, T], lengths of S sequences, and turns."""
    scores = batch.scores.total
    responses = torch.tensor(sequences.response_lengths())
    turns = torch.tensor([sum(each.num_turns for each in response.sequences) for response in batch.responses])
    return {
        **_spread("critic/score", scores[scores.isfinite()]),
        **_spread("critic/rewards", rewards[rewards.isfinite()]),
        **_deciles("critic/rewards", rewards[rewards.isfinite()]),
        **_spread("critic/advantages", *select(sequences.response_mask, advantages)),
        **compute_length_metrics(sequences),
        "response_length/clip_ratio": _mean(responses >= max_response_length),
        **(_spread("num_turns", turns) if bool((turns > 1).any()) else {}),
        **_compute_staleness(batch),
        **_compute_difficulty(batch),
        "data/responses": float(len(batch.responses)),
        "data/prompts_consumed": float(batch.consumed),
        "train/num_gen_batches": float(batch.num_gen_batches),
    }


def compute_source_metrics(batch: RolloutBatch) -> dict[str, float]:
    """Number of responses and mean score for each data source. A source whose rewards all failed has no score."""
    rows = group_rows([prompt.data_source for prompt in batch.prompts])
    scores = {source: batch.scores.total[numbers] for source, numbers in rows.items()}
    return {
        **{f"source/responses/{source}": float(len(numbers)) for source, numbers in rows.items()},
        **{f"source/score/{source}": float(of.nanmean()) for source, of in scores.items() if of.isfinite().any()},
    }


def compute_sandbox_metrics(statistics: Statistics | None) -> dict[str, float]:
    """Metrics of rollout.multiTurn.sandbox: claims, failures, and the time until a claim had its pod, in seconds."""
    if statistics is None:
        return {}
    claims = {"sandbox/claims": float(len(statistics.claim_seconds)), "sandbox/failed": float(statistics.failed)}
    if not statistics.claim_seconds:
        return claims
    seconds = torch.tensor(statistics.claim_seconds, dtype=torch.double)
    median, high = torch.quantile(seconds, torch.tensor([0.5, 0.99], dtype=torch.double)).tolist()
    return {**claims, "sandbox/claim_seconds/p50": median, "sandbox/claim_seconds/p99": high}


def compute_length_metrics(sequences: Sequences) -> dict[str, float]:
    """Metrics of prompt and response lengths, in tokens."""
    responses = torch.tensor(sequences.response_lengths())
    return {
        **_spread("response_length", responses),
        **_deciles("response_length", responses),
        **_spread("prompt_length", sequences.prompt_mask.sum(-1)),
    }


def _compute_staleness(batch: RolloutBatch) -> dict[str, float]:
    if batch.staleness is None or batch.staleness.isnan().all():
        return {}
    known = batch.staleness[~batch.staleness.isnan()]
    return {"training/staleness/mean": _mean(known), "training/staleness/max": float(known.max())}


def _compute_difficulty(batch: RolloutBatch) -> dict[str, float]:
    known = [prompt.difficulty for prompt in batch.prompts if prompt.difficulty is not None]
    return {"data/difficulty": sum(known) / len(known)} if known else {}


def compute_policy_metrics(sequences: Sequences, entropy: Tensor) -> dict[str, float]:
    """Mean `entropy` [B, T] of the distributions from which the tokens were sampled."""
    return {"actor/entropy": _mean(*select(sequences.response_mask, entropy))}


def compute_critic_metrics(values: Tensor, returns: Tensor, mask: Tensor) -> dict[str, float]:
    """Metrics of values and returns [B, T], and the share of the returns' variance that the values explain."""
    predicted, targets = (each.double() for each in select(mask, values, returns))
    variance = targets.var()
    explained = {"critic/vf_explained_var": float(1 - (targets - predicted).var() / variance)} if variance > 0 else {}
    return {**_spread("critic/values", predicted), **_spread("critic/returns", targets), **explained}


def compute_update_metrics(steps: Sequence[Sequence[UpdateResult]], model: str = "actor") -> dict[str, float]:
    """Mean metrics over the optimizer steps of one training step. `steps`: results by optimizer step and rank.

    A gradient norm that is not finite makes the mean not finite, and is counted in skipped_updates.
    """
    names = steps[0][0].shares
    return {
        **{name: sum(rank.shares[name] for ranks in steps for rank in ranks) / len(steps) for name in names},
        f"{model}/grad_norm": sum(ranks[0].grad_norm for ranks in steps) / len(steps),
        f"{model}/skipped_updates": float(sum(ranks[0].skipped for ranks in steps)),
        f"{model}/lr": steps[-1][0].learning_rate,
    }


def _spread(name: str, values: Tensor) -> dict[str, float]:
    return {f"{name}/mean": _mean(values), f"{name}/max": float(values.max()), f"{name}/min": float(values.min())}


def _deciles(name: str, values: Tensor) -> dict[str, float]:
    """The first and the last decile of values [B], interpolated linearly: the band of a plot, which min and max of a
    large batch would fill."""
    low, high = torch.quantile(values.double(), torch.tensor([0.1, 0.9], dtype=torch.double)).tolist()
    return {f"{name}/p10": low, f"{name}/p90": high}


def _mean(values: Tensor) -> float:
    return float(torch.mean(values.double()))
