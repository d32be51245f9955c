"""The gates of the suites, from the files of their evaluations before and after the training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlt_api.blocks.evaluation import Evaluation
from rlt_trainer.evaluation.gate import Gate, judge
from rlt_trainer.evaluation.sample_file import read_samples
from rlt_trainer.telemetry.run_directory import get_evaluation_file


def judge_suites(run: Path, suites: Sequence[Evaluation], step: int) -> dict[str, Gate]:
    """Judge each suite with promoteIf after the last `step`, by its name.

    The files have the scores also if the program has restarted since. A gate without a readable file is unknown.
    """
    return {suite.name: _judge_suite(run, suite, step) for suite in suites if suite.promote_if is not None}


def _judge_suite(run: Path, suite: Evaluation, step: int) -> Gate:
    assert suite.promote_if is not None
    try:
        samples = read_samples(get_evaluation_file(run, suite.name, step))
        needs_base = suite.promote_if.gain_above is not None
        base = read_samples(get_evaluation_file(run, suite.name, 0)) if needs_base else None
    except (OSError, ValueError) as error:
        return Gate(None, str(error))
    return judge(suite.promote_if, samples, base)
