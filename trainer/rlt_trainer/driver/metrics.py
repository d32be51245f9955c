"""A step's numbers under verl's names. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.batches.update_result import UpdateResult


def rollout_metrics(
    sequences: Sequences, generated: RolloutBatch, rewards: Tensor, advantages: Tensor, max_response_length: int
) -> dict[str, float]:
    """Scores and rewards [B], NaN where one failed; advantages [B, T]; lengths and turns of a step's responses."""
    scores = generated.scores.total
    responses = sequences.response_attention.sum(-1)
    turns = torch.tensor([response.num_turns for response in generated.responses])
    return {
        **_spread("critic/score", scores[scores.isfinite()]),
        **_spread("critic/rewards", rewards[rewards.isfinite()]),
        **_spread("critic/advantages", advantages[sequences.response_mask]),
        **_spread("response_length", responses),
        "response_length/clip_ratio": _mean(responses >= max_response_length),
        **_spread("prompt_length", sequences.prompt_mask.sum(-1)),
        **(_spread("num_turns", turns) if bool((turns > 1).any()) else {}),
        "data/prompts_consumed": float(generated.consumed),
        "train/num_gen_batches": float(generated.batches),
    }


def policy_metrics(sequences: Sequences, entropy: Tensor) -> dict[str, float]:
    """How sure the policy is: `entropy` [B, T] of the distributions that tokens were drawn from."""
    return {"actor/entropy": _mean(entropy[sequences.response_mask])}


def critic_metrics(values: Tensor, returns: Tensor, mask: Tensor) -> dict[str, float]:
    """What the critic said and what it is to say, [B, T], and how much of the returns' variance it explains."""
    said, meant = values[mask].double(), returns[mask].double()
    variance = meant.var()
    explained = {"critic/vf_explained_var": float(1 - (meant - said).var() / variance)} if variance > 0 else {}
    return {**_spread("critic/values", said), **_spread("critic/returns", meant), **explained}


def update_metrics(steps: Sequence[Sequence[UpdateResult]], model: str = "actor") -> dict[str, float]:
    """The optimizer steps of one training step, each as its ranks' results: the mean over the optimizer steps.

    A gradient norm that is not finite stays so in the mean, and is counted in skipped_updates.
    """
    names = steps[0][0].shares
    return {
        **{name: sum(rank.shares[name] for ranks in steps for rank in ranks) / len(steps) for name in names},
        f"{model}/grad_norm": sum(ranks[0].grad_norm for ranks in steps) / len(steps),
        f"{model}/skipped_updates": float(sum(ranks[0].skipped for ranks in steps)),
        f"{model}/lr": steps[-1][0].learning_rate,
    }


def validation_metrics(generated: RolloutBatch) -> dict[str, float]:
    """Mean scores on the validation set, by data source as verl has them, and over all of it: val/reward/mean."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, prompt in enumerate(generated.prompts):
        rows[prompt.data_source].append(row)
    scores = generated.scores
    metrics = {"val/reward/mean": float(scores.total.nanmean()), "val/failed": float(scores.failed.sum())}
    for source, places in sorted(rows.items()):
        metrics[f"val-core/{source}/reward/mean@1"] = float(scores.total[places].nanmean())
        for name, each in scores.by_reward.items() if len(scores.by_reward) > 1 else ():
            metrics[f"val-aux/{source}/{name}/mean@1"] = float(each[places].nanmean())
    lengths = torch.tensor([len(response.token_ids) for response in generated.responses])
    return {**metrics, "val-aux/response_length/mean": _mean(lengths)}


def _spread(name: str, values: Tensor) -> dict[str, float]:
    return {f"{name}/mean": _mean(values), f"{name}/max": float(values.max()), f"{name}/min": float(values.min())}


def _mean(values: Tensor) -> float:
    return float(torch.mean(values.double()))
