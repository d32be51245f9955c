"""The metrics of a suite under verl's names (process_validation_metrics in verl/trainer/ppo/metric_utils.py).

The name of the suite is before the data source: val-core/SUITE/SOURCE/METRIC/mean@N. Two suites can have the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.evaluation.bootstrap import find_differences, find_intervals
from rlt_trainer.evaluation.estimates import compute_estimates, list_sizes
from rlt_trainer.evaluation.samples import Samples


def compute_validation_metrics(
    suite: str, batch: RolloutBatch, samples: Samples, base: Samples | None = None
) -> dict[str, float]:
    """Compute the metrics of a suite from its batch and the samples of the batch.

    For each data source: mean@n of all scores (avg@n), best@k (pass@k) and maj@k for each size k, as in
    evaluation.estimates. Metrics of n responses have a confidence interval (low, high) and, with the samples of an
    earlier evaluation, the paired difference to it (gain, gain_low, gain_high).
    """
    scores = batch.scores
    whole = f"val/{suite}"
    metrics = {f"{whole}/reward/mean": float(scores.total.nanmean()), f"{whole}/failed": float(scores.failed.sum())}
    metrics |= {f"{whole}/reward/{name}": value for _, name, value in _bound(samples, base, [])}
    for source, rows in sorted(group_rows(samples.sources.tolist()).items()):
        metrics |= _compute_source(f"{suite}/{source}", samples.select(np.array(rows)), base)
        for name, each in scores.by_reward.items() if len(scores.by_reward) > 1 else ():
            mean = float(each.reshape(-1, samples.n)[rows].nanmean())
            metrics[f"val-aux/{suite}/{source}/{name}/mean@{samples.n}"] = mean
    lengths = torch.tensor([len(response.token_ids) for response in batch.responses], dtype=torch.float64)
    return {**metrics, f"val-aux/{suite}/response_length/mean": float(lengths.mean())}


def group_rows(keys: Sequence[str]) -> dict[str, list[int]]:
    """Return the rows of each key."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    return rows


def _compute_source(source: str, samples: Samples, base: Samples | None) -> dict[str, float]:
    """The metrics of a data source: SUITE/SOURCE. verl's core metrics are over all n responses."""
    n = samples.n
    sizes = list_sizes(n)
    metrics = {}
    for label, estimate in compute_estimates(samples, sizes).items():
        kind = "core" if label == "mean" or label.endswith(f"@{n}") else "aux"
        name = f"mean@{n}" if label == "mean" else f"{label}/mean"
        metrics[f"val-{kind}/{source}/reward/{name}"] = estimate.value
    for label, name, value in _bound(samples, base, sizes[-1:]):
        stem = f"mean@{n}" if label == "mean" else label
        metrics[f"val-aux/{source}/reward/{stem}/{name}"] = value
    return metrics


def _bound(samples: Samples, base: Samples | None, sizes: Sequence[int]) -> Iterator[tuple[str, str, float]]:
    """Yield the limits of each estimate, and its difference to `base` with limits: label, name and value."""
    for label, interval in find_intervals(compute_estimates(samples, sizes)).items():
        yield label, "low", interval.low
        yield label, "high", interval.high
    if base is None:
        return
    current, start = samples.pair(base)
    for label, gain in find_differences(compute_estimates(current, sizes), compute_estimates(start, sizes)).items():
        yield label, "gain", gain.value
        yield label, "gain_low", gain.low
        yield label, "gain_high", gain.high
