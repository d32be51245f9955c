"""The driver's report on the run, for the console, the run directory, the progress server and the sinks."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlt_api.spec.training_config import (
    BrokenMetricRule,
    GateResult,
    ProgressReport,
    PublicationResult,
    SandboxReport,
)
from rlt_api.spec.training_config import PhaseSeconds as ReportedPhases
from rlt_api.status.job_status import ProgressMetrics
from rlt_pod.report.driver_report import LATEST_STEPS, METRICS, PROGRESS_PREFIX
from rlt_pod.report.metric_rules import DEFAULTS, Limit, MetricHistory, forget_streaks, list_broken, record
from rlt_pod.report.phase_seconds import Devices, PhaseSeconds, add, build_phases, divide_step, save
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_pod.report.step_line import step_line
from rlt_trainer.evaluation.gate import Gate
from rlt_trainer.telemetry.published_results import PublishedResults
from rlt_trainer.telemetry.rollout_log import select_rollouts
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.sinks import Sinks
from rlt_trainer.telemetry.spans import Span
from rlt_trainer.telemetry.traces import Traces

STAGE_PHASES = {"warmup": "update", "training": "idle", "evaluating": "evaluate", "exporting": "idle"}
"""Stage -> the phase of its time outside of steps. The time before them is the start of the job."""
RESULTS = {True: "passed", False: "failed", None: "unknown"}
"""Gate.passed -> its text on the console."""


class Reporter:
    """Keeps the latest report, and publishes every change immediately.

    `devices`: the accelerators of the run. None: it has none, and the report has no phases. `results`: the results in
    the bucket of the run, which are uploaded at each checkpoint.
    """

    def __init__(
        self,
        server: ProgressServer,
        run: RunDirectory,
        *,
        total_steps: int,
        sinks: Sinks | None = None,
        traces: Traces | None = None,
        limits: Mapping[str, Limit] = DEFAULTS,
        devices: Devices | None = None,
        results: PublishedResults | None = None,
    ) -> None:
        self._server = server
        self._run = run
        self._sinks = sinks or Sinks([])
        self._traces = traces
        self._durations: deque[float] = deque(maxlen=LATEST_STEPS)
        self._rewards: deque[float] = deque(maxlen=LATEST_STEPS)
        self._metrics: Mapping[str, float] = {}
        self._suites: Mapping[str, float] = {}
        """The latest values of suites, for the scrapes of one more step."""
        self.row: Mapping[str, float] = {}
        """The latest row of metrics.jsonl. Empty: none of this run before its first step."""
        self._limits = limits
        self._history = MetricHistory()
        self._devices = devices
        self._phases = PhaseSeconds()
        self._counted = time.monotonic()
        self._results = results
        self._report = ProgressReport(
            stage="preparing",
            step=0,
            total_steps=total_steps,
            checkpoint_directory=f"{results.url}/checkpoints" if results else None,
            updated=_now(),
        )
        self._publish()

    def stage(self, stage: str, message: str) -> None:
        """Begin a stage. The console shows `message`."""
        print(f"[{stage}] {message}", flush=True)
        self._count_stage()
        self._publish(stage=stage)

    def set_total_steps(self, total_steps: int) -> None:
        """Set the number of steps."""
        self._publish(total_steps=total_steps)

    def set_rollout_devices(self, count: int) -> None:
        """Set the number of accelerators that only generate, which the time of the next step is divided by."""
        if self._devices:
            self._devices = self._devices._replace(rollout=count)

    def resumed(self, step: int, metrics: dict[str, float] | None) -> None:
        """Report that the run resumes after `step`.

        `metrics`: the step's, from its checkpoint. They are recorded if the run ended before it recorded them.
        None: the checkpoint belongs to another run.
        """
        rows = _read_rows(self._run.path, step)
        if metrics and step not in rows:
            self._run.append_metrics(step, metrics)
            self._sinks.step(step, metrics)
            rows[step] = metrics
        for number, row in rows.items():
            self._history = record(self._history, number, row, self._limits)
            self._rewards.extend(_find_reward(row))
        self._history = forget_streaks(self._history)
        self.row = {} if metrics is None else rows.get(step, {})
        self._publish(step=step, **({} if metrics is None else {"latest_checkpoint_step": step}))

    def step(
        self,
        step: int,
        metrics: dict[str, float],
        rollouts: Sequence[dict[str, Any]] = (),
        images: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Report a step. telemetry.rollout_log selects the rollouts that are stored, and collects their `images`."""
        if self._devices:
            phases = divide_step(metrics, max(self._take_seconds(), metrics["timing_s/step"]), self._devices)
            self._phases = add(self._phases, phases, step)
            metrics |= {"perf/idle_share": phases["idle"] / sum(phases.values())}
        self._record(step, metrics)
        kept = select_rollouts(rollouts)
        names = {name for line in kept for name in line.get("images", ())}
        self._run.write_images({name: image for name, image in images.items() if name in names})
        if kept:
            self._run.write_rollouts(step, kept)
        seconds = metrics["timing_s/step"]
        self._durations.append(seconds)
        self._metrics = {**self._suites, **metrics}
        self._suites = {}
        self._rewards.extend(_find_reward(metrics))
        self._publish(
            step=step,
            sandboxes=_build_sandbox_report(metrics),
            broken_rules=self._list_broken(),
            seconds_per_step=sum(self._durations) / len(self._durations),
            longest_step_seconds=max(seconds, self._report.longest_step_seconds or 0),
            tokens_per_second=metrics["perf/total_num_tokens"] / seconds,
            reward=sum(self._rewards) / len(self._rewards) if self._rewards else None,
            metrics=ProgressMetrics.model_validate(
                {
                    field: next((metrics[name] for name in names if name in metrics), None)
                    for field, names in METRICS.items()
                }
            ),
        )

    def spans(self, step: int, spans: Iterable[Span]) -> None:
        """Record the spans that ended in `step`. They belong to it, also if they began in an earlier one."""
        ended = [replace(span, step=step) for span in spans]  # readers need the lines of a step without others between
        self._run.append_spans(ended)
        if self._traces:
            self._traces.export(ended)

    def evaluation(self, step: int, metrics: dict[str, float]) -> None:
        """Report the suites after `step`, the latest one, or before the first step. Another line completes its row."""
        self._record(step, metrics, self.row)
        self._metrics = self.row
        self._suites = metrics
        self._publish(broken_rules=self._list_broken())

    def evaluated_model(self, step: int, metrics: dict[str, float]) -> None:
        """Report the evaluation of a model after `step` steps (evaluateOnly)."""
        self._count_stage()
        self._record(step, metrics)
        self._metrics = metrics
        self._durations.append(metrics["timing_s/testing"])

    def evaluated_models(self, count: int) -> None:
        """Report the number of models that are evaluated, by this program or an earlier one."""
        mean = sum(self._durations) / len(self._durations) if self._durations else None
        self._publish(step=count, seconds_per_step=mean)
        self.upload_results()

    def warmup_step(self, step: int, steps: int, loss: float) -> None:
        """Report a supervised step. The console shows ten of them."""
        self._metrics = {"warmup/step": float(step), "warmup/loss": loss}
        self._count_stage()
        self._publish()
        if step % max(1, steps // 10) == 0 or step == steps:
            print(f"[warmup] {step}/{steps} loss {loss:.4f}", flush=True)

    def checkpoint(self, step: int) -> None:
        """Report that the checkpoint of `step` is complete."""
        self._phases = save(self._phases, step)
        self._publish(latest_checkpoint_step=step, checkpoint_error=None)
        self.upload_results()

    def upload_results(self) -> None:
        """Upload the results of the steps so far, if the run has a bucket."""
        if self._results:
            self._results.upload()

    def checkpoint_failed(self, error: str) -> None:
        """Report that a checkpoint could not be saved, until one is complete."""
        self._publish(checkpoint_error=error)

    def exported(self, path: Path) -> None:
        """Report the path of the exported model, or its URL in the bucket."""
        self._publish(exported_path=self._run.locate(path))

    def gates(self, step: int, gates: Mapping[str, Gate]) -> None:
        """Report the gates of the suites, by suite, for the model exported after `step`."""
        if not gates:
            return
        for suite, gate in gates.items():
            print(f"[gate] {suite}: {RESULTS[gate.passed]}: {gate.evidence}", flush=True)
        self._run.write_gates(step, gates)
        results = [GateResult(suite=suite, passed=gate.passed, evidence=gate.evidence) for suite, gate in gates.items()]
        self._publish(gates=results)

    def published(self, results: Sequence[PublicationResult]) -> None:
        """Report where the exported model is published, or why it is not."""
        for each in results:
            print(f"[publish] {each.url}: {each.error or each.revision}", flush=True)
        self._publish(published=list(results))

    def print_last(self) -> None:
        """Close sinks and traces, and print the last report, which stays readable after the server stops."""
        self._sinks.close()
        if self._traces:
            self._traces.close()
        print(PROGRESS_PREFIX + self._report.model_dump_json(by_alias=True, exclude_none=True), flush=True)

    def _record(
        self, step: int, metrics: dict[str, float], earlier: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Record metrics of the step. `earlier`: those that are recorded already."""
        row = {**earlier, **metrics}
        self.row = row
        print(step_line(step, metrics), flush=True)
        self._run.append_metrics(step, row)
        self._sinks.step(step, row)
        self._history = record(self._history, step, metrics, self._limits)

    def _list_broken(self) -> list[BrokenMetricRule]:
        broken = list_broken(self._history, self._limits)
        return [BrokenMetricRule.model_validate(each._asdict()) for each in broken]

    def _count_stage(self) -> None:
        """Count the time since the last step, or since the stage began."""
        seconds = self._take_seconds()
        if phase := STAGE_PHASES.get(self._report.stage):
            self._phases = add(self._phases, {phase: seconds})

    def _take_seconds(self) -> float:
        """The seconds that are not counted yet."""
        before = self._counted
        self._counted = time.monotonic()
        return self._counted - before

    def _publish(self, **changes: Any) -> None:
        if self._devices and self._phases.total:
            changes["phases"] = ReportedPhases.model_validate(build_phases(self._phases))
        self._report = self._report.model_copy(update={**changes, "updated": _now()})
        self._server.publish(self._report, self._metrics)


def _read_rows(run: Path, last: int) -> dict[int, dict[str, float]]:
    """The metrics of the steps up to `last` that the run has recorded, in their order."""
    rows = {}
    for line in map(json.loads, read_history(run / METRICS_FILE, after=-1).splitlines()):
        if (step := line.pop("step")) <= last:
            rows[step] = {name: math.nan if value is None else value for name, value in line.items()}
    return rows


def _find_reward(metrics: Mapping[str, float]) -> list[float]:
    """The reward of a step, if it has one that is finite."""
    value = next((metrics[name] for name in METRICS["reward"] if name in metrics), None)
    return [value] if value is not None and math.isfinite(value) else []


def _build_sandbox_report(metrics: Mapping[str, float]) -> SandboxReport | None:
    """The claims of a step. None without sandboxes."""
    if "sandbox/failed" not in metrics:
        return None
    return SandboxReport(
        failed=int(metrics["sandbox/failed"]),
        claim_seconds_p50=metrics.get("sandbox/claim_seconds/p50"),
        claim_seconds_p99=metrics.get("sandbox/claim_seconds/p99"),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
