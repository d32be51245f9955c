"""A step is reported to files, console and sinks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlt.runs import pages
from rlt_api.spec.training_config import ProgressReport
from rlt_pod.report.driver_report import PROGRESS_PREFIX
from rlt_pod.report.metric_rules import Limit
from rlt_pod.report.phase_seconds import Devices
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.evaluation.bootstrap import Interval
from rlt_trainer.evaluation.gate import Gate
from rlt_trainer.telemetry import chrome_trace, run_history
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.sinks import Sinks
from rlt_trainer.telemetry.stopwatch import Stopwatch

METRICS = {"timing_s/step": 2.0, "perf/total_num_tokens": 10.0, "critic/rewards/mean": 0.5}


class Collected:
    name = "a list"

    def __init__(self) -> None:
        self.steps: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed = True


def test_evaluation_and_steps_reach_files_console_and_sinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    sink = Collected()
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=3, sinks=Sinks([sink]))
    reporter.evaluation(0, {"val-core/gsm8k/reward/mean@1": 0.25})
    reporter.step(1, METRICS, [{"reward": 0.5}] * 300)
    reporter.print_last()
    server.close()
    expected: list[dict[str, Any]] = [{"step": 0, "val-core/gsm8k/reward/mean@1": 0.25}, {"step": 1, **METRICS}]
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == expected
    assert [{"step": step, **metrics} for step, metrics in sink.steps] == expected
    assert sink.closed
    assert len((tmp_path / "rollouts/step-1.jsonl").read_text().splitlines()) == 256
    first, second, last = capsys.readouterr().out.splitlines()
    assert (first, second[:9]) == ("step:0 - val-core/gsm8k/reward/mean@1:0.25", "step:1 - ")
    assert json.loads(last.removeprefix(PROGRESS_PREFIX))["metrics"]["reward"] == 0.5


def test_a_resumed_run_records_the_step_that_the_ended_run_saved_but_did_not_record(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    server = ProgressServer(0, run_directory=tmp_path)
    sink = Collected()
    run.append_metrics(1, METRICS)
    reporter = Reporter(server, run, total_steps=3, sinks=Sinks([sink]))
    reporter.resumed(1, {"critic/rewards/mean": 0.25})
    reporter.resumed(2, {"critic/rewards/mean": 0.75})
    server.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, **METRICS}, {"step": 2, "critic/rewards/mean": 0.75}]
    assert sink.steps == [(2, {"critic/rewards/mean": 0.75})]


def test_suites_beside_the_next_step_complete_the_row_of_their_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    sink = Collected()
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=3, sinks=Sinks([sink]))
    reporter.step(1, {**METRICS, "critic/kl": math.nan})
    reporter.evaluation(1, {"val/digits/reward/mean": 0.25})
    reporter.step(2, METRICS)
    assert capsys.readouterr().out.splitlines()[1] == "step:1 - val/digits/reward/mean:0.25"
    rows = [json.loads(line) for line in read_history(tmp_path / METRICS_FILE, after=0).splitlines()]
    completed = {"step": 1, **METRICS, "critic/kl": None, "val/digits/reward/mean": 0.25}
    assert rows == [completed, {"step": 2, **METRICS}]
    assert [(step, "val/digits/reward/mean" in row) for step, row in sink.steps] == [(1, False), (1, True), (2, False)]
    resumed = Reporter(server, RunDirectory(tmp_path), total_steps=3)
    resumed.resumed(1, METRICS)
    resumed.evaluation(1, {"val/sums/reward/mean": 0.5})
    server.close()
    rows = [json.loads(line) for line in read_history(tmp_path / METRICS_FILE, after=0).splitlines()]
    assert rows == [{**completed, "val/sums/reward/mean": 0.5}]


def test_the_row_of_a_step_that_another_attempt_has_repeated_from_an_earlier_one_is_recorded_again(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path)
    for step in (1, 2, 3, 2):  # the second attempt has resumed after step 1, and ended before it recorded step 3
        run.append_metrics(step, METRICS)
    server = ProgressServer(0, run_directory=tmp_path)
    Reporter(server, run, total_steps=4).resumed(3, {"critic/rewards/mean": 0.75})
    server.close()
    rows = [json.loads(line) for line in read_history(tmp_path / METRICS_FILE, after=0).splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[-1] == {"step": 3, "critic/rewards/mean": 0.75}


def test_another_runs_checkpoint_is_not_the_latest_one_of_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    published: list[ProgressReport] = []
    monkeypatch.setattr(server, "publish", lambda report, _: published.append(report))
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    reporter.resumed(20, None)
    reporter.checkpoint(25)
    server.close()
    assert [(report.step, report.latest_checkpoint_step) for report in published[1:]] == [(20, None), (20, 25)]


def test_the_report_has_the_error_of_a_save_until_a_checkpoint_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    published: list[ProgressReport] = []
    monkeypatch.setattr(server, "publish", lambda report, _: published.append(report))
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    reporter.checkpoint(10)
    reporter.checkpoint_failed("No space left on device")
    reporter.checkpoint(20)
    server.close()
    found = [(report.latest_checkpoint_step, report.checkpoint_error) for report in published[1:]]
    assert found == [(10, None), (10, "No space left on device"), (20, None)]


def test_spans_become_a_trace_for_perfetto(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path)
    driver = Stopwatch(step=1)
    rank = Stopwatch(0, step=1)
    engine = Stopwatch(1, engine=0, step=1)
    with driver.measure("step"), rank.measure("gen"):
        pass
    with engine.measure("gen"):
        pass
    run.append_spans([*driver.take(), *rank.take(), *engine.take()])
    with (tmp_path / "spans.jsonl").open("a") as file:
        file.write('{"rank": 0, "pha')  # the process was killed while writing
    assert chrome_trace.main([str(tmp_path)]) == 0
    events = json.loads(capsys.readouterr().out)["traceEvents"]
    names = [(event["pid"], event["args"]["name"]) for event in events if event["ph"] == "M"]
    assert names == [(-1, "driver"), (0, "rank 0"), (1, "engine 0")]
    step, gen, _ = (event for event in events if event["ph"] == "X")
    assert (step["name"], gen["name"], gen["args"]) == ("step", "gen", {"step": 1})
    assert step["ts"] <= gen["ts"]
    assert gen["ts"] + gen["dur"] <= step["ts"] + step["dur"] + 1


def test_a_span_that_begins_in_an_earlier_step_belongs_to_the_one_it_ends_in(tmp_path: Path) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    driver = Stopwatch(step=1)
    generation = driver.measure("gen", thread=1)
    with driver.measure("step"):
        generation.__enter__()
    reporter.spans(1, driver.take())
    driver.step = 2
    with driver.measure("step"):
        generation.__exit__(None, None, None)
    reporter.spans(2, driver.take())
    server.close()
    for step, phases in {1: ["step"], 2: ["gen", "step"]}.items():
        served = [json.loads(line)["phase"] for line in run_history.read_spans(tmp_path, step).splitlines()]
        page, _ = pages.read_spans(tmp_path, step)
        assert served == [span["phase"] for span in page] == phases


def test_a_run_without_spans_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"spans\.jsonl: no such file"):
        chrome_trace.main([str(tmp_path)])


def test_the_report_has_the_claims_of_the_latest_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def report(metrics: dict[str, float]) -> Any:
        reporter.step(1, {**METRICS, **metrics})
        reporter.print_last()
        line = capsys.readouterr().out.splitlines()[-1]
        return json.loads(line.removeprefix(PROGRESS_PREFIX)).get("sandboxes")

    server = ProgressServer(0, run_directory=tmp_path)
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    times = {"sandbox/claim_seconds/p50": 0.25, "sandbox/claim_seconds/p99": 4.0}
    assert report({}) is None
    claims = report({"sandbox/claims": 8.0, "sandbox/failed": 2.0, **times})
    assert claims == {"failed": 2, "claimSecondsP50": 0.25, "claimSecondsP99": 4.0}
    assert report({"sandbox/claims": 0.0, "sandbox/failed": 0.0}) == {"failed": 0}
    server.close()


def test_the_longest_step_is_of_the_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    for step in range(1, 21):
        reporter.step(step, {**METRICS, "timing_s/step": 9.5 if step == 1 else 2.0}, [])
    reporter.print_last()
    server.close()
    report = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix(PROGRESS_PREFIX))
    assert (report["longestStepSeconds"], report["secondsPerStep"]) == (9.5, 2.0)


def test_the_reward_of_the_run_is_the_mean_of_ten_steps_also_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(reporter: Reporter) -> Any:
        reporter.print_last()
        return json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix(PROGRESS_PREFIX))

    server = ProgressServer(0, run_directory=tmp_path)
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    for step in range(1, 13):
        reporter.step(step, {**METRICS, "critic/rewards/mean": float(step)}, [])
    assert (report(reporter)["reward"], reporter._report.metrics.reward) == (7.5, 12.0)
    resumed = Reporter(server, RunDirectory(tmp_path), total_steps=30)
    resumed.resumed(11, METRICS)
    resumed.step(12, {**METRICS, "critic/rewards/mean": 22.0}, [])
    server.close()
    assert report(resumed)["reward"] == 8.5


def test_a_broken_rule_is_published_and_a_resumed_run_needs_new_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    limits = {"gradientSpikes": Limit(10.0, 2)}
    published: list[ProgressReport] = []
    monkeypatch.setattr(server, "publish", lambda report, _: published.append(report))
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=30, limits=limits)
    for step in range(1, 26):
        reporter.step(step, {**METRICS, "actor/grad_norm": 1.0 if step <= 20 else math.inf}, [])
    assert [len(report.broken_rules) for report in published[-6:]] == [0, 0, 1, 1, 1, 1]
    resumed = Reporter(server, RunDirectory(tmp_path), total_steps=30, limits=limits)
    resumed.resumed(22, {})
    for step in (23, 24):
        resumed.step(step, {**METRICS, "actor/grad_norm": 50.0}, [])
    server.close()
    assert [len(report.broken_rules) for report in published[-3:]] == [0, 0, 1]


def test_the_report_divides_the_time_of_the_accelerators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    published: list[ProgressReport] = []
    monkeypatch.setattr(server, "publish", lambda report, _: published.append(report))
    clock = iter([0.0, 100.0, 160.0, 170.0, 182.0, 190.0])
    monkeypatch.setattr("rlt_trainer.driver.reporter.time.monotonic", lambda: next(clock))
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=2, devices=Devices(train=8))
    reporter.stage("warmup", "")
    reporter.stage("training", "")
    step = {**METRICS, "timing_s/step": 9.0, "timing_s/gen": 6.0, "timing_s/update_actor": 2.0}
    reporter.step(1, {**step})
    reporter.checkpoint(1)
    reporter.step(2, {**step})
    reporter.stage("exporting", "")
    server.close()
    assert published[1].phases is None, "the preparation is part of the start of the job"
    assert published[-1].phases
    found = published[-1].phases.model_dump()
    assert found == {"generate": 12, "update": 64, "sync": 0, "evaluate": 0, "idle": 14, "uncommitted": 20}
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["perf/idle_share"] for line in lines] == pytest.approx([0.2, 4 / 12])


def test_the_time_of_a_step_is_divided_by_the_pods_that_generate_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    clock = iter([0.0, 0.0, 10.0, 20.0])
    monkeypatch.setattr("rlt_trainer.driver.reporter.time.monotonic", lambda: next(clock))
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=2, devices=Devices(train=8, rollout=8))
    reporter.stage("training", "")
    step = {**METRICS, "timing_s/step": 10.0, "timing_s/gen": 10.0, "timing_s/update_actor": 0.0}
    reporter.step(1, {**step})
    reporter.set_rollout_devices(24)
    reporter.step(2, {**step})
    server.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["perf/idle_share"] for line in lines] == pytest.approx([1 / 2, 1 / 4])


def test_gates_reach_console_file_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = ProgressServer(0, run_directory=tmp_path)
    reporter = Reporter(server, RunDirectory(tmp_path), total_steps=3)
    reporter.gates(3, {})
    assert not (tmp_path / "evaluation").exists()
    interval = Interval(0.25, 0.125, math.nan)
    gates = {"math": Gate(True, "mean 0.5", "mean", 0.5, interval), "aime": Gate(None, "no such file")}
    reporter.gates(3, gates)
    reporter.print_last()
    server.close()
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["[gate] math: passed: mean 0.5", "[gate] aime: unknown: no such file"]
    report = ProgressReport.model_validate_json(last.removeprefix(PROGRESS_PREFIX))
    assert [(gate.suite, gate.passed, gate.evidence) for gate in report.gates] == [
        ("math", True, "mean 0.5"),
        ("aime", None, "no such file"),
    ]
    found = json.loads((tmp_path / "evaluation/gates.json").read_text())
    assert (found["step"], list(found["gates"])) == (3, ["math", "aime"])
    assert found["gates"]["math"]["gain"] == {"value": 0.25, "low": 0.125, "high": None}
