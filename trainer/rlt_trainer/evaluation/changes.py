"""The prompts whose score differs between two evaluations of a suite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlt_api.spec.suite_changes import MAX_SAMPLES, MAX_TEXT, ChangedSample, SuiteChanges
from rlt_trainer.evaluation.estimates import compute_mean
from rlt_trainer.evaluation.sample_file import Texts, read_samples, read_texts
from rlt_trainer.evaluation.samples import Samples

_CUT = " … "


def find_changes(suite: str, step: int, file: Path, base_file: Path) -> SuiteChanges:
    """Return the changes of a suite from the file of its evaluation before the first step to the one after `step`.

    The scores of a prompt are the means over its responses. A prompt without a score in one of the files is left out.
    Raises OSError, and ValueError for another file.
    """
    samples, base = read_samples(file).pair(read_samples(base_file))
    differences = _average(samples) - _average(base)
    gains = np.flatnonzero(differences > 0)
    losses = np.flatnonzero(differences < 0)
    shown = [*_take_largest(gains, differences), *_take_largest(losses, differences)]
    indices = samples.indices[shown].tolist()
    texts = read_texts(file, indices)
    base_texts = read_texts(base_file, indices)
    return SuiteChanges(
        suite=suite,
        step=step,
        prompts=int(np.isfinite(differences).sum()),
        won=len(gains),
        lost=len(losses),
        samples=[_build_sample(samples, base, row, texts, base_texts) for row in shown],
    )


def _average(samples: Samples) -> NDArray[np.float64]:
    """The mean score of each prompt: [P]. NaN if it has none."""
    estimate = compute_mean(samples.scores)
    with np.errstate(invalid="ignore"):
        return estimate.sums / estimate.counts


def _take_largest(rows: NDArray[np.int64], differences: NDArray[np.float64]) -> list[int]:
    order = np.argsort(-np.abs(differences[rows]), kind="stable")
    found: list[int] = rows[order][:MAX_SAMPLES].tolist()
    return found


def _build_sample(samples: Samples, base: Samples, row: int, texts: Texts, base_texts: Texts) -> ChangedSample:
    """The prompt of a row. After a gain, the best response and the worst one of the base; otherwise the reverse."""
    score = float(np.nanmean(samples.scores[row]))
    base_score = float(np.nanmean(base.scores[row]))
    scores = samples.scores[row]
    starts = base.scores[row]
    number = np.nanargmax(scores) if score > base_score else np.nanargmin(scores)
    base_number = np.nanargmin(starts) if score > base_score else np.nanargmax(starts)
    index = int(samples.indices[row])
    found = texts.get((index, int(number)), {})
    start = base_texts.get((index, int(base_number)), {})
    return ChangedSample(
        index=index,
        base_score=base_score,
        score=score,
        prompt=shorten(found.get("prompt") or start.get("prompt")),
        answer=shorten(found.get("ground_truth") or start.get("ground_truth")),
        base_response=shorten(start.get("response")),
        response=shorten(found.get("response")),
    )


def shorten(text: str | None) -> str | None:
    """Leave out the middle of a text above MAX_TEXT characters: a response often ends with its answer."""
    if text is None or len(text) <= MAX_TEXT:
        return text
    kept = MAX_TEXT - len(_CUT)
    return f"{text[: kept // 2]}{_CUT}{text[len(text) - (kept - kept // 2) :]}"
