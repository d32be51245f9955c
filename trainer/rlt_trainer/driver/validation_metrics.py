"""The metrics of a validation under verl's names (process_validation_metrics in verl/trainer/ppo/metric_utils.py)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import comb

import torch
from torch import Tensor

from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.final_answer import FINAL_ANSWER

BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
"""A final answer in LaTeX, without braces in it."""


def compute_validation_metrics(batch: RolloutBatch, n: int) -> dict[str, float]:
    """Compute the metrics of `n` responses to each prompt, which are adjacent: avg@n, pass@k and maj@n in verl's terms.

    For each data source: mean@n is the mean of all scores. best@k is the expected maximum score of k responses,
    which is pass@k for scores of 0 and 1; k is n and the powers of 2 below it. maj@n is the score of the most frequent
    answer. A response whose reward failed is left out.
    """
    sources = [prompt.data_source for prompt in batch.prompts]
    scores = batch.scores
    failed = float(batch.scores.failed.sum())
    metrics = {"val/reward/mean": float(scores.total.nanmean()), "val/failed": failed}
    answers = [find_answer(text) for text in batch.texts] if n > 1 else []
    for source, numbers in sorted(group_rows(sources).items()):
        total = scores.total[numbers]
        metrics[f"val-core/{source}/reward/mean@{n}"] = float(total.nanmean())
        if n > 1:
            of_source = [answers[number] for number in numbers]
            metrics |= {
                f"val-{kind}/{source}/reward/{name}": v for kind, name, v in _compute_spread(total, of_source, n)
            }
        for name, each in scores.by_reward.items() if len(scores.by_reward) > 1 else ():
            metrics[f"val-aux/{source}/{name}/mean@{n}"] = float(each[numbers].nanmean())
    lengths = torch.tensor([len(response.token_ids) for response in batch.responses], dtype=torch.float64)
    return {**metrics, "val-aux/response_length/mean": float(lengths.mean())}


def group_rows(keys: Sequence[str]) -> dict[str, list[int]]:
    """Return the rows of each key."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    return rows


def _compute_spread(scores: Tensor, answers: Sequence[str], n: int) -> Iterator[tuple[str, str, float]]:
    """Yield group ("core" or "aux"), name and value of the metrics over the responses to a prompt."""
    prompts = list(range(0, len(scores), n))
    sizes = [2**power for power in range(1, n.bit_length()) if 2**power < n] + [n]
    for size in sizes:
        best = [compute_best(scores[row : row + n], size) for row in prompts]
        known = [value for value in best if value is not None]
        if known:
            yield "core" if size == n else "aux", f"best@{size}/mean", sum(known) / len(known)
    majority = [compute_majority(scores[row : row + n], answers[row : row + n]) for row in prompts]
    if known := [value for value in majority if value is not None]:
        yield "core", f"maj@{n}/mean", sum(known) / len(known)


def compute_best(scores: Tensor, k: int) -> float | None:
    """Compute the expected maximum of `k` scores from [n], drawn without replacement. None: fewer than k are finite.

    For scores of 0 and 1 it is the unbiased pass@k of Chen et al. 2021 (arXiv 2107.03374). verl draws with replacement.
    """
    ordered: list[float] = sorted(scores[scores.isfinite()].tolist())
    if len(ordered) < k:
        return None
    subsets = comb(len(ordered), k)
    return sum(value * comb(below, k - 1) for below, value in enumerate(ordered)) / subsets


def compute_majority(scores: Tensor, answers: Sequence[str]) -> float | None:
    """Return the mean score of the responses with the most frequent answer, the first of several. None: all failed."""
    by_answer: dict[str, list[float]] = defaultdict(list)
    for score, answer in zip(scores.tolist(), answers, strict=True):
        if score == score:  # not NaN
            by_answer[answer].append(score)
    most = max(by_answer.values(), key=len, default=None)
    return sum(most) / len(most) if most else None


def find_answer(text: str) -> str:
    """Return the final answer of a response: after GSM8K's mark, in LaTeX's \\boxed, or the whole response."""
    found = FINAL_ANSWER.findall(text) or BOXED.findall(text)
    return str(found[-1]).replace(",", "").strip() if found else text.strip()
