"""The comparison of two evaluations, of one run or of two."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlt_trainer.evaluation.bootstrap import LEVEL, MIN_PROMPTS, find_differences
from rlt_trainer.evaluation.estimates import compute_estimates, list_sizes
from rlt_trainer.evaluation.retention import number_evaluations
from rlt_trainer.evaluation.sample_file import read_samples
from rlt_trainer.evaluation.samples import Samples

FOLDER = "evaluation"
"""The folder of a run with a folder for each suite (rlt_trainer.telemetry.run_directory)."""
HEADER = ("DATA SOURCE", "METRIC", "BASE", "VALUE", "DIFFERENCE", f"{LEVEL:.0%} INTERVAL")


def main(arguments: Sequence[str] | None = None) -> int:
    """`rlt-trainer compare BASE OTHER`: print the differences between two evaluations, or between two runs by suite."""
    parser = argparse.ArgumentParser(
        prog="rlt-trainer compare",
        description="The differences between two evaluations, paired by prompt, with their confidence intervals.",
    )
    parser.add_argument("base", type=Path, help="the base: RUN/evaluation/SUITE/step-N.parquet, or RUN")
    parser.add_argument(
        "other", type=Path, help="the same of a later step, or of another run; of two runs, the newest are compared"
    )
    options = parser.parse_args(arguments)
    if not (options.base.is_dir() and options.other.is_dir()):
        print_comparison(options.base, options.other)
        return 0
    for base, other in list_pairs(options.base, options.other):
        print(f"{other.parent.name}: {base.stem} and {other.stem}")
        print_comparison(base, other)
    return 0


def list_pairs(base: Path, other: Path) -> list[tuple[Path, Path]]:
    """Return the newest evaluations of two runs for each suite of both. Raises ValueError if they share none."""
    suites = find_newest(base)
    others = find_newest(other)
    shared = [name for name in suites if name in others]
    if not shared:
        raise ValueError(
            f"{other}: its suites ({', '.join(others) or 'none'}) are not in {base}, which "
            f"has {', '.join(suites) or 'none'}. Pass the folders of runs with the same suite of spec.evaluation."
        )
    return [(suites[name], others[name]) for name in shared]


def find_newest(run: Path) -> dict[str, Path]:
    """Return the file of the highest step for each suite of a run, sorted by name."""
    numbered = {folder.name: number_evaluations(folder) for folder in sorted((run / FOLDER).glob("*"))}
    return {name: files[max(files)] for name, files in numbered.items() if files}


def print_comparison(base_file: Path, file: Path) -> None:
    """Print the table of two files. Raises ValueError if they share fewer than MIN_PROMPTS prompts."""
    base = read_samples(base_file)
    samples = read_samples(file)
    current, start = samples.pair(base)
    if len(current.scores) < MIN_PROMPTS:
        raise ValueError(
            f"{file}: {len(current.scores)} of its {len(samples.scores)} prompts are also in {base_file}: a "
            f"comparison needs {MIN_PROMPTS}. Pass evaluations of the same data."
        )
    rows = [HEADER, *compare(current, start)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"{len(current.scores)} prompts in both, {len(base.scores)} in the base, {len(samples.scores)} in the other")


def compare(samples: Samples, base: Samples) -> Iterator[tuple[str, ...]]:
    """Yield the cells below HEADER for evaluations of the same prompts: the mean, best@k and maj@k of each source."""
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
