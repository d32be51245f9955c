"""The folder of a run: what it was asked, what it measured, what it said. Written here, read by everything else."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlt_api.training_config import TrainingConfig
from rlt_trainer.telemetry.spans import Span

METRICS = "metrics.jsonl"
SPANS = "spans.jsonl"
ROLLOUTS = "rollouts"
RECORDINGS = "recordings"

_log = logging.getLogger(__name__)


def rollouts_file(run: Path, step: int) -> Path:
    """Where the responses of a step go."""
    return run / ROLLOUTS / f"step-{step}.jsonl"


class RunDirectory:
    """The layout: config.json, metrics.jsonl, spans.jsonl, rollouts/step-N.jsonl, checkpoints/, export/; where they are
    asked for, recordings/, profiles/, tensorboard/ and wandb/.

    A folder that cannot be written fails the run at its start (ValueError). Later failures, a full disk for instance,
    never stop the training: each file warns once and goes on trying. A resumed run repeats the steps after its
    checkpoint: in metrics.jsonl the last line of a step counts.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._failing: set[str] = set()
        try:
            for folder in (self.path / ROLLOUTS, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
            for name in (METRICS, SPANS):
                with (self.path / name).open("a+b") as file:
                    _end_torn_line(file)
        except OSError as error:
            raise ValueError(
                f"The run directory {self.path} cannot be written: {error.strerror or error}. Check spec.storage: "
                "its claim must be mounted ReadWriteMany and have space."
            ) from error

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        """Where the finished model goes, in Hugging Face's format."""
        return self.path / "export"

    @property
    def recordings(self) -> Path:
        """Where recorded steps go (recording.py), and below it, in checkpoints/, what each began with."""
        return self.path / RECORDINGS

    @property
    def profiles(self) -> Path:
        """Where torch.profiler's traces go."""
        return self.path / "profiles"

    def write_config(self, config: TrainingConfig) -> None:
        """Write the resolved config. Raises OSError: it is written before the training starts."""
        (self.path / "config.json").write_text(json.dumps(config.to_json(), indent=2) + "\n", encoding="utf-8")

    def append_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Append one line {"step": N, key: value ...}; NaN and infinities become null, which JSON can say."""
        self._attempt(METRICS, lambda: _append(self.path / METRICS, _json_line({"step": step, **metrics})))

    def append_spans(self, spans: Sequence[Span]) -> None:
        """Append a line for each span. Steps that a resumed run repeats are there twice, as they were."""
        self._attempt(SPANS, lambda: _append(self.path / SPANS, b"".join(_json_line(asdict(span)) for span in spans)))

    def append_rollouts(self, step: int, rollouts: list[dict[str, Any]]) -> None:
        """Add the file of one step, a line a response. A step that is repeated after a resumption replaces its file."""
        file = rollouts_file(self.path, step)
        self._attempt(ROLLOUTS, lambda: _replace(file, b"".join(map(_json_line, rollouts))))

    def _attempt(self, sink: str, write: Callable[[], None]) -> None:
        try:
            write()
        except (OSError, ValueError, TypeError) as error:
            if sink not in self._failing:
                _log.warning("%s in %s cannot be written and has gaps from here on: %s", sink, self.path, error)
            self._failing.add(sink)


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _end_torn_line(file: Any) -> None:
    """A run that was killed while writing leaves half a line: end it, so that the next one stays whole."""
    if file.tell() > 0:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            file.write(b"\n")


def _json_line(values: dict[str, Any]) -> bytes:
    # A lone surrogate, which UTF-8 cannot say, becomes the escape that JSON has for it.
    return (json.dumps(_finite(values), ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value
