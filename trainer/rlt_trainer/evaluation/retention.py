"""Which files of a suite's evaluations a run keeps."""

from __future__ import annotations

import math
import re
from pathlib import Path

from rlt_trainer.evaluation.estimates import compute_mean
from rlt_trainer.evaluation.sample_file import read_samples

NEWEST = 20
"""Number of the newest files that are kept, beside the first one and the best one before them."""
_FILE = re.compile(r"step-([0-9]+)\.parquet")


def find_superseded(folder: Path, step: int) -> list[Path]:
    """Return the files of a suite to remove after the evaluation of `step`.

    The first file, the NEWEST newest ones, and of the others the one with the highest mean score are kept. Files of
    later steps, which a resumed run replaces, are left.
    """
    numbered = number_evaluations(folder)
    between = [numbered[number] for number in sorted(numbered) if number <= step][1:-NEWEST]
    if len(between) < 2:
        return []
    best = max(between, key=_read_score)
    return [path for path in between if path != best]


def number_evaluations(folder: Path) -> dict[int, Path]:
    """Return the files of a suite by step."""
    return {int(match[1]): path for path in folder.glob("step-*") if (match := _FILE.fullmatch(path.name))}


def _read_score(file: Path) -> float:
    """The mean score in a file. A damaged file, or one without a score, is the worst."""
    try:
        score = compute_mean(read_samples(file).scores).value
    except (OSError, ValueError):
        return -math.inf
    return score if math.isfinite(score) else -math.inf
