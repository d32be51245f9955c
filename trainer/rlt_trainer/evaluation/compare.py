"""The comparison of two validations, of one run or of two."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlt_trainer.evaluation.bootstrap import LEVEL, MIN_PROMPTS, find_differences
from rlt_trainer.evaluation.estimates import compute_estimates, list_sizes
from rlt_trainer.evaluation.sample_file import read_samples
from rlt_trainer.evaluation.samples import Samples

HEADER = ("DATA SOURCE", "METRIC", "BASE", "VALUE", "DIFFERENCE", f"{LEVEL:.0%} INTERVAL")


def main(arguments: Sequence[str] | None = None) -> int:
    """`rlt-trainer compare BASE FILE`: print the differences between two validations."""
    parser = argparse.ArgumentParser(
        prog="rlt-trainer compare",
        description="The differences between two validations, paired by prompt, with their confidence intervals.",
    )
    parser.add_argument("base", type=Path, help="the base: RUN/validation/step-N.parquet")
    parser.add_argument("file", type=Path, help="the same of a later step, or of another run")
    options = parser.parse_args(arguments)
    base = read_samples(options.base)
    samples = read_samples(options.file)
    current, start = samples.pair(base)
    if len(current.scores) < MIN_PROMPTS:
        raise ValueError(
            f"{options.file}: {len(current.scores)} of its {len(samples.scores)} prompts are also in {options.base}: a "
            f"comparison needs {MIN_PROMPTS}. Pass validations of the same data."
        )
    rows = [HEADER, *compare(current, start)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"{len(current.scores)} prompts in both, {len(base.scores)} in the base, {len(samples.scores)} in the other")
    return 0


def compare(samples: Samples, base: Samples) -> Iterator[tuple[str, ...]]:
    """Yield the cells below HEADER for validations of the same prompts: the mean, best@k and maj@k of each source."""
    sizes = list_sizes(min(samples.n, base.n))
    for source in sorted(set(samples.sources.tolist())):
        rows = samples.sources == source
        estimates = compute_estimates(samples.select(rows), sizes)
        starts = compute_estimates(base.select(rows), sizes)
        for label, difference in find_differences(estimates, starts).items():
            yield (
                source,
                label,
                f"{starts[label].value:.4f}",
                f"{estimates[label].value:.4f}",
                f"{difference.value:+.4f}",
                f"{difference.low:+.4f} to {difference.high:+.4f}",
            )
