"""The progress of a command from its output."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from verl_output import OPENRLHF_LINE, ROLL_END, ROLL_LINE, ROLL_PREFIX, ROLL_TRACKER_LINE, VERL_BAR, VERL_LINE

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import ProgressMetrics
from rlt_pod.command.console import Progress, build_report, finish, update
from rlt_pod.command.exposition import format_metrics
from rlt_pod.report.driver_report import METRICS
from rlt_pod.report.prometheus_names import GAUGES
from rlt_trainer.telemetry.exposition import Snapshot, build_families

START = Progress(0.0)
CONSOLE = Path(__file__).parent / "verl_console"


def report_after(*lines: str, since: Progress = START) -> dict[str, Any]:
    """Return the report after the lines, which come 2 s apart."""
    progress = since
    for number, line in enumerate(lines, start=1):
        progress = update(progress, line, number * 2.0)
    progress_report = build_report(progress)
    assert progress_report is not None
    assert ProgressReport.model_validate(progress_report).step == progress_report["step"]
    return progress_report


def test_verls_line_has_every_metric() -> None:
    progress_report = report_after(VERL_LINE)
    assert (progress_report["stage"], progress_report["step"], progress_report["updated"]) == (
        "training",
        34,
        "1970-01-01T00:00:02.000Z",
    )
    assert progress_report["metrics"] == {
        "reward": -0.0182796623557806,
        "kl": 0.0013280365410537343,
        "entropy": 0.22266578674316406,
        "responseLength": 1267.024169921875,
        "loss": 0.042396901015308686,
        "gradNorm": 0.129638671875,
        "clipFraction": 0.0007935191160472839,
    }


def test_the_reward_of_the_run_is_the_mean_of_ten_steps() -> None:
    lines = [f"step:{step} - critic/rewards/mean:{step}" for step in range(1, 13)]
    assert (report_after(*lines)["reward"], report_after(*lines)["metrics"]["reward"]) == (7.5, 12)
    assert report_after(*lines, "step:1 - critic/rewards/mean:4")["reward"] == 4, "the program has started again"
    assert "reward" not in report_after("step:1 - a:1")


@pytest.mark.parametrize("version", ["0.5.0", "0.9.1"])
def test_the_line_of_each_version_has_every_metric(version: str) -> None:
    """The files have what Tracking of verl printed, with numpy 2, for the metrics that reduce_metrics and metric_utils
    computed from random tensors."""
    progress_report = report_after((CONSOLE / f"{version}.txt").read_text())
    assert (progress_report["step"], progress_report["secondsPerStep"]) == (1, 2.75)
    assert progress_report["tokensPerSecond"] == 30 / 2.75
    assert progress_report["metrics"] == {
        "reward": 2.140744686126709,
        "kl": 0.002,
        "entropy": 0.5,
        "responseLength": 4.5,
        "loss": 0.375,
        "gradNorm": 1.5,
        "clipFraction": 0.005,
    }


@pytest.mark.parametrize(
    ("pair", "metrics"),
    [
        ("critic/score/mean:0.5", {"reward": 0.5}),
        ("actor/reward_kl_penalty:0.02", {"kl": 0.02}),
        ("critic/kl:0.02", {"kl": 0.02}),
        ("actor/entropy_loss:0.3", {"entropy": 0.3}),
        ("actor/ppo_kl:0.01", {}),
        ("critic/rewards/mean:nan", {}),
    ],
)
def test_alternative_names_of_a_metric(pair: str, metrics: dict[str, float]) -> None:
    assert report_after(f"step:1 - {pair}")["metrics"] == metrics


@pytest.mark.parametrize(
    "line",
    [
        "Total training steps: 624",
        "\x1b[36m(TaskRunner pid=9)\x1b[0m Total training steps: 624",
        "Total training steps: 624,",
        VERL_BAR,
    ],
)
def test_the_total_is_read_from_the_output(line: str) -> None:
    assert report_after(line)["totalSteps"] == 624


def test_the_total_of_the_user_has_precedence() -> None:
    given = Progress(0.0, total_steps=100, total_is_given=True)
    assert report_after("Total training steps: 624", VERL_BAR, "step:3 - a:1", since=given)["totalSteps"] == 100


def test_the_total_is_at_least_the_step() -> None:
    assert report_after("Total training steps: 2", "step:3 - a:1")["totalSteps"] == 3


def test_an_unknown_total_is_zero() -> None:
    assert report_after("step:3 - a:1")["totalSteps"] == 0


def test_the_progress_bar_counts_only_without_step_lines() -> None:
    bar = "Training Progress:  10%|# | {}/50 [00:05<00:45,  5.0s/it]"
    assert report_after(bar.format(0), bar.format(1))["step"] == 1
    assert report_after(bar.format(0), "step:1 - a:1", bar.format(2))["step"] == 1


def test_metrics_of_one_step_are_merged_and_the_next_steps_replace_them() -> None:
    first = ("step:1 - critic/rewards/mean:0.5", "step:1 - actor/kl_loss:0.1")
    assert report_after(*first)["metrics"] == {"reward": 0.5, "kl": 0.1}
    assert report_after(*first, "step:2 - actor/kl_loss:0.2")["metrics"] == {"kl": 0.2}


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (["step:1 - timing_s/step:1.5"], 1.5),
        (["step:1 - timing_s/step:1.5 - timing_s/testing:2.5"], 4.0),
        (["step:1 - timing_s/step:1.5", "step:2 - timing_s/step:2.5"], 2.0),
        ([f"step:{step} - timing_s/step:{step}" for step in range(1, 21)], 15.5),
        ([f"step:{step} - a:1" for step in range(10, 30, 4)], 0.5),
        (["step:9 - timing_s/step:1.5", "step:2 - timing_s/step:7.0"], 7.0),
    ],
)
def test_seconds_per_step_is_the_mean_of_the_latest_steps(lines: list[str], seconds: float) -> None:
    """From the metrics of the program, or from the times of the lines, which come 2 s apart."""
    assert report_after(*lines)["secondsPerStep"] == seconds


def test_the_longest_step_is_of_the_whole_program() -> None:
    lines = ["step:1 - timing_s/step:9.5", *(f"step:{step} - timing_s/step:2" for step in range(2, 30))]
    assert report_after(*lines)["longestStepSeconds"] == 9.5


def test_a_broken_rule_is_reported_until_a_healthy_step() -> None:
    flat = [f"step:{step} - critic/advantages/max:0.0 - critic/advantages/min:0.0" for step in range(1, 11)]
    assert report_after(*flat[:9])["brokenRules"] == []
    (broken,) = report_after(*flat)["brokenRules"]
    assert (broken["rule"], broken["evidence"][:13]) == ("noLearningSignal", "Since step 1,")
    assert report_after(*flat, "step:11 - critic/advantages/max:1.0 - critic/advantages/min:0.0")["brokenRules"] == []


def test_one_step_without_times_has_no_duration() -> None:
    assert not {"secondsPerStep", "longestStepSeconds"} & set(report_after("step:1 - a:1"))


def test_tokens_per_second_covers_all_workers() -> None:
    line = "step:1 - perf/total_num_tokens:3000 - timing_s/step:2.0 - perf/throughput:187.5"
    assert report_after(line)["tokensPerSecond"] == 1500.0


def test_a_command_without_steps_has_no_report() -> None:
    assert build_report(finish(update(START, "hello step: 4", 1.0), 2.0)) is None


def test_every_metric_in_the_report_is_a_field_of_the_api() -> None:
    assert ProgressMetrics.model_validate(dict.fromkeys(METRICS, 1.0))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_equal_the_trainers() -> None:
    """Every metric that the trainer names, one of a phase, one without a name, and a value that is not finite."""
    keys = [gauge.verl for gauge in GAUGES if not gauge.verl.endswith("/*")]
    metrics = {key: float(number) for number, key in enumerate([*keys, "timing_s/gen", 'val/"x"'], start=2)}
    metrics = {**metrics, "training/global_step": 2.0, "actor/lr": float("inf")}
    line = " - ".join(["step:2", *(f"{key}:{value}" for key, value in metrics.items())])
    progress = update(update(START, "Total training steps: 4", 1.0), line, 8.0)
    progress_report = ProgressReport.model_validate(build_report(progress))
    tokens = metrics["perf/total_num_tokens"]
    snapshot = Snapshot("sum", "demo", last_step_timestamp=8.0, report=progress_report, metrics=metrics, tokens=tokens)
    expected = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in build_families(snapshot)
        for sample in family.samples
    }
    assert samples(format_metrics(progress, job="sum", namespace="demo")) == expected


def test_every_metric_has_help_and_type() -> None:
    lines = format_metrics(
        update(START, "step:3 - actor/entropy:1 - a:1", 1.0), job="sum", namespace="demo"
    ).splitlines()
    types = [index for index, line in enumerate(lines) if line.startswith("# TYPE")]
    assert types
    for index in types:
        assert re.match(f"# HELP {lines[index].split()[2]} \\w", lines[index - 1])


def test_an_unknown_total_is_not_exported() -> None:
    known, unknown = (
        format_metrics(update(since, "step:3 - a:1", 1.0), job="sum", namespace="demo")
        for since in (Progress(0.0, total_steps=9), START)
    )
    assert "rlt_trainer_total_steps{" in known
    assert "rlt_trainer_total_steps{" not in unknown


def test_openrlhfs_line_has_every_metric() -> None:
    found = report_after(OPENRLHF_LINE)
    assert (found["step"], found["secondsPerStep"]) == (12, 96.25)
    assert found["metrics"] == {
        "reward": 0.4375,
        "kl": 0.00021,
        "entropy": 0.31,
        "responseLength": 612.5,
        "loss": -0.013671875,
        "gradNorm": 0.84375,
        "clipFraction": 0.0019,
    }


@pytest.mark.parametrize("lines", [(ROLL_LINE, ROLL_END), (ROLL_TRACKER_LINE, ROLL_END), (ROLL_LINE,)])
def test_rolls_lines_have_every_metric(lines: tuple[str, ...]) -> None:
    found = report_after(*lines)
    assert (found["step"], found["secondsPerStep"]) == (8, 80.5)  # ROLL counts from 0
    assert found["metrics"] == {
        "reward": 0.375,
        "kl": 0.0031,
        "responseLength": 512.0,
        "loss": -0.0125,
        "gradNorm": 0.5,
        "clipFraction": 0.25,
    }


def test_roll_without_a_tracker_has_steps() -> None:
    found = report_after(f"{ROLL_PREFIX}pipeline step 0 start...", f"{ROLL_PREFIX}pipeline step 0 finished", ROLL_END)
    assert (found["step"], found["metrics"]) == (8, {})


@pytest.mark.parametrize(
    "line",
    [
        "Global step 3: {}",
        f'{{"system/step": {10**400}}}',
        '{"system/step": ' + "[" * 100_000,
        'a "system/step" in text {not json}',
        '{"system/step": true}',
        '{"system/step": 1.5}',
        "pipeline step 7 start...",
        '[1]{"system/step"',
    ],
)
def test_other_lines_are_not_steps(line: str) -> None:
    assert build_report(update(START, line, 1.0)) is None


def test_values_that_are_not_numbers_are_skipped() -> None:
    found = report_after(
        "Global step 3: {'kl': 1.2.3, 'policy_loss': 0.5}", '{"system/step": 4, "a": ' + "9" * 400 + "}"
    )
    assert (found["step"], found["metrics"]) == (5, {})


def test_the_phases_of_verl_are_added_up_and_those_after_the_checkpoint_are_at_risk() -> None:
    line = "step:{} - timing_s/step:10.0 - timing_s/gen:6.0 - timing_s/update_actor:2.0 - critic/rewards/mean:0.5"
    progress = Progress(0.0)
    for step, now in ((1, 100.0), (2, 112.0), (3, 122.0)):
        progress = update(progress, line.format(step), now)
    report = build_report(replace(progress, checkpoint_step=2))
    assert report
    assert report["phases"] == {"generate": 18, "update": 6, "sync": 0, "evaluate": 0, "idle": 8, "uncommitted": 10}


def test_a_program_without_verls_phases_reports_none() -> None:
    assert "phases" not in report_after("step:1 - timing_s/step:10.0", "step:2 - timing_s/step:10.0")
