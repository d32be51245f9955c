"""The metrics of suites, and their files in the run directory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.dataset import EvaluationSet
from rlt_trainer.data.suites import Suite
from rlt_trainer.driver.validation_metrics import compute_validation_metrics
from rlt_trainer.evaluation.changes import find_changes
from rlt_trainer.evaluation.sample_file import read_base, write_samples
from rlt_trainer.evaluation.samples import Samples
from rlt_trainer.telemetry.run_directory import RunDirectory, get_evaluation_file


def score_suites(
    step: int,
    suites: Sequence[Suite[EvaluationSet]],
    batches: Iterable[RolloutBatch],
    run: RunDirectory,
    *,
    compare: Collection[str],
    find_superseded: Callable[[Path, int], list[Path]],
) -> dict[str, float]:
    """Return the metrics of suites from their batches of responses, and write their scores to the run directory, with
    the changes since step 0.

    `compare`: the names of suites whose scores are compared with their file of step 0. `find_superseded`: as in
    RunDirectory.write_evaluation.
    """
    metrics: dict[str, float] = {}
    for suite, batch in zip(suites, batches, strict=True):
        samples = Samples.of(batch, suite.settings.responses_per_prompt)
        run.write_evaluation(suite.name, step, partial(write_samples, samples, batch), find_superseded)
        run.write_scores(suite.name, partial(samples.summarize, step))
        has_base = suite.name in compare and step > 0
        base_file = get_evaluation_file(run.path, suite.name, 0)
        base = read_base(base_file) if has_base else None
        if base is not None:
            file = get_evaluation_file(run.path, suite.name, step)
            run.write_changes(suite.name, partial(find_changes, suite.name, step, file, base_file))
        metrics |= compute_validation_metrics(suite.name, batch, samples, base)
        metrics[f"val/{suite.name}/overlong_prompts"] = float(suite.rows.overlong)
    return metrics
