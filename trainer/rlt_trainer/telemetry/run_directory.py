"""The directory of a run: config, metrics, spans, responses, checkpoints and export. This module writes it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rlt_api.spec.suite_changes import SuiteChanges
from rlt_api.spec.suite_scores import SuiteScores
from rlt_api.spec.training_config import TrainingConfig, dump_config
from rlt_pod.report.append import append
from rlt_pod.report.step_history import METRICS_FILE
from rlt_trainer.data.images import FOLDER as IMAGES
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.lease import Lease
from rlt_trainer.telemetry.spans import Span

SPANS = "spans.jsonl"
ROLLOUTS = "rollouts"
EVALUATIONS = "evaluation"
GATES = "gates.json"
CHANGES = "changes.json"
SCORES = "scores.json"
RECORDINGS = "recordings"
EXPORT = "export"

_log = logging.getLogger(__name__)


def get_rollouts_file(run: Path, step: int) -> Path:
    """Return the file of a step's responses."""
    return run / ROLLOUTS / f"step-{step}.jsonl"


def get_evaluation_file(run: Path, suite: str, step: int) -> Path:
    """Return the file of a suite's evaluation after a step, or before the first step with step 0."""
    return run / EVALUATIONS / suite / f"step-{step}.parquet"


def get_changes_file(run: Path, suite: str) -> Path:
    """Return the file with the prompts of a suite whose score has changed: rlt_api.spec.suite_changes, as one line."""
    return run / EVALUATIONS / suite / CHANGES


class RunDirectory:
    """Contains config.json, metrics.jsonl, spans.jsonl, rollouts/step-N.jsonl, checkpoints/ and export/. If the job
    enables them, also evaluation/SUITE/step-N.parquet, evaluation/SUITE/changes.json and scores.json,
    evaluation/gates.json, images/, recordings/, profiles/, tensorboard/ and wandb/.

    A directory that cannot be written fails the run at the start (ValueError). Later failures, such as a full disk,
    never stop the training: the first failure of each file is logged, and each write is tried again. A resumed run
    repeats the steps after its checkpoint: the last line of a step in metrics.jsonl is valid.

    With a lease, a write raises LeaseLostError if a later attempt has taken it. With the lease of a bucket, the
    directory is on the disk of this pod alone, and the uploads check the lease.
    """

    def __init__(self, path: str | Path, lease: Lease | BucketLease | None = None) -> None:
        self.path = Path(path)
        self.lease = lease
        self._failing: set[str] = set()
        try:
            for folder in (self.path / ROLLOUTS, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
            for name in (METRICS_FILE, SPANS):
                with (self.path / name).open("a+b") as file:
                    _end_partial_line(file)
        except OSError as error:
            raise ValueError(
                f"The run directory {self.path} cannot be written: {error.strerror or error}. Verify spec.storage: "
                "the PVC must be ReadWriteMany and have free space."
            ) from error

    @property
    def checkpoints(self) -> Path:
        """The directory of checkpoints."""
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        """The directory of the trained model in Hugging Face format.

        In a bucket, each program has another one: a put of an earlier one that reaches the server late changes no file.
        """
        folder = self.path / EXPORT
        return folder / str(self.lease.number) if isinstance(self.lease, BucketLease) else folder

    @property
    def recordings(self) -> Path:
        """The directory of recorded steps (recording.py). Its checkpoints/ has the checkpoint before each step."""
        return self.path / RECORDINGS

    @property
    def profiles(self) -> Path:
        """The directory of torch.profiler traces."""
        return self.path / "profiles"

    def locate(self, path: Path) -> str:
        """Return the URL in the bucket of the run, or the path if it is on a volume or not of this run."""
        if isinstance(self.lease, BucketLease) and path.is_relative_to(self.path):
            return f"{self.lease.bucket.url}/{path.relative_to(self.path)}"
        return str(path)

    def write_config(self, config: TrainingConfig) -> None:
        """Write the resolved config, before the training starts. Raises OSError."""
        self.check_lease()
        (self.path / "config.json").write_text(dump_config(config) + "\n", encoding="utf-8")

    def check_lease(self) -> None:
        """Raise LeaseLostError if a later attempt has the lease. Raises OSError or BucketError if that is unknown."""
        if self.lease:
            self.lease.check()

    def append_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Append one line {"step": N, key: value ...}. NaN and infinities, which JSON does not support, become null."""
        self._try_write(
            METRICS_FILE, lambda: append(self.path / METRICS_FILE, _to_json_line({"step": step, **metrics}))
        )

    def append_spans(self, spans: Sequence[Span]) -> None:
        """Append a line for each span. Steps that a resumed run repeats have spans of both times."""
        content = b"".join(_to_json_line(asdict(span)) for span in spans)
        self._try_write(SPANS, lambda: append(self.path / SPANS, content))

    def write_rollouts(self, step: int, rollouts: list[dict[str, Any]]) -> None:
        """Write the file of a step, one line for each response. A step that a resumed run repeats replaces its file."""
        file = get_rollouts_file(self.path, step)
        self._try_write(ROLLOUTS, lambda: _replace(file, b"".join(map(_to_json_line, rollouts))))

    def write_evaluation(
        self, suite: str, step: int, build: Callable[[], bytes], find_superseded: Callable[[Path, int], list[Path]]
    ) -> None:
        """Write the file of a suite's evaluation, whose content `build` returns.

        Then remove the files that `find_superseded` returns for the folder and the step.
        """
        file = get_evaluation_file(self.path, suite, step)

        def write() -> None:
            _replace(file, build())
            for old in find_superseded(file.parent, step):
                old.unlink(missing_ok=True)

        self._try_write(EVALUATIONS, write)

    def write_changes(self, suite: str, find: Callable[[], SuiteChanges]) -> None:
        """Replace the changes of a suite with those that `find` returns."""
        file = get_changes_file(self.path, suite)
        self._try_write(CHANGES, lambda: _replace(file, _to_json_line(find().to_json())))

    def write_scores(self, suite: str, collect: Callable[[], SuiteScores]) -> None:
        """Replace the scores of a suite's newest evaluation with those that `collect` returns."""
        file = self.path / EVALUATIONS / suite / SCORES
        self._try_write(SCORES, lambda: _replace(file, _to_json_line(collect().to_json())))

    def write_gates(self, step: int, gates: Mapping[str, Any]) -> None:
        """Write the gates of the suites after `step`: dataclasses by suite."""
        content = {"step": step, "gates": {suite: asdict(gate) for suite, gate in gates.items()}}
        self._try_write(GATES, lambda: _replace(self.path / EVALUATIONS / GATES, _to_json_line(content)))

    def write_images(self, images: Mapping[str, bytes]) -> None:
        """Write images that are missing, by their names in the rollouts."""
        for name, image in images.items():
            if not (self.path / name).exists():
                self._try_write(IMAGES, partial(_replace, self.path / name, image))

    def _try_write(self, name: str, write: Callable[[], object]) -> None:
        try:
            if isinstance(self.lease, Lease):
                self.lease.check()
            write()
        except (OSError, ValueError, TypeError) as error:
            if name not in self._failing:
                _log.warning("%s cannot be written to %s, data is missing from now on: %s", name, self.path, error)
            self._failing.add(name)


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _end_partial_line(file: Any) -> None:
    """End an incomplete last line, which a run that was killed while writing leaves, so that the next line is valid."""
    if file.tell() > 0:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            file.write(b"\n")


def _to_json_line(values: dict[str, Any]) -> bytes:
    # A lone surrogate cannot be encoded as UTF-8 and becomes a JSON escape.
    line = json.dumps(_replace_non_finite(values), ensure_ascii=False, allow_nan=False) + "\n"
    return line.encode(errors="backslashreplace")


def _replace_non_finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _replace_non_finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_replace_non_finite(item) for item in value]
        case _:
            return value
