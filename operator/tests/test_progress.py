"""From the trainer's report and log to status.progress and the message of a failure."""

from __future__ import annotations

import math
import shlex

import observed as o
import pytest

from rlt_operator.diagnosis.progress import (
    build_progress,
    extract_error,
    find_signal,
    format_duration,
    parse_last_report,
    parse_report,
    round_metric,
)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45.4, "45s"), (190, "3m10s"), (3599.7, "1h0m"), (7530, "2h5m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_progress_has_percentage_and_time_left() -> None:
    half = build_progress(o.report(99, seconds_per_step=1.5))
    assert (half.percent, half.display, half.eta) == (49, "49%", "2m32s")


def test_without_a_total_the_step_replaces_the_percentage() -> None:
    shown = build_progress(o.report(12, total_steps=0, seconds_per_step=1.5))
    assert (shown.display, shown.eta) == ("step 12", None)


def test_a_finished_training_has_no_time_left() -> None:
    assert build_progress(o.report(200)).eta is None


def test_metrics_have_four_significant_digits() -> None:
    shown = build_progress(o.report(1, metrics={"reward": 0.123456, "kl": 1.23456e-7, "loss": math.nan}))
    assert (shown.metrics.reward, shown.metrics.kl, shown.metrics.loss) == (0.1235, 1.235e-07, None)


def test_the_reward_is_the_mean_that_the_driver_reports_or_the_latest_of_an_older_driver() -> None:
    metrics = {"reward": 0.5}
    assert build_progress(o.report(1, metrics=metrics, reward=0.123456)).reward == 0.1235
    assert build_progress(o.report(1, metrics=metrics)).reward == 0.5
    assert build_progress(o.report(1)).reward is None


def test_infinity_is_none() -> None:
    assert round_metric(math.inf) is None


def test_the_last_report_is_used() -> None:
    last = parse_last_report(o.final_log(1) + o.final_log(200) + "bye\n")
    assert last
    assert last.step == 200


def test_a_newer_trainers_report_is_read() -> None:
    assert parse_report('{"stage": "x", "step": 1, "totalSteps": 2, "updated": "now", "novelty": 1}')


@pytest.mark.parametrize("text", ["", "{}", "<html>", '{"step": "many"}'])
def test_invalid_reports_are_ignored(text: str) -> None:
    assert parse_report(text) is None


def test_the_trainers_error_is_extracted() -> None:
    assert (
        extract_error("a\n(pid=1) rlt-trainer: error: no such reward: fame\nraylet noise\n") == "no such reward: fame"
    )


def test_without_a_trainer_error_the_last_lines_are_used() -> None:
    log = "".join(f"line {number}\n\n" for number in range(20)) + o.final_log()
    assert extract_error(log).splitlines() == [*(f"line {number}" for number in range(11, 20)), "hello"]


def test_rays_preamble_is_removed() -> None:
    preamble = (
        "2026-01-02 03:04:05,6\tINFO job_manager.py:581 -- Runtime env is setting up.\nRunning entrypoint for job x: y"
    )
    assert extract_error(f"{preamble}\nboom\n") == "boom"


def test_an_entrypoint_of_several_lines_is_removed() -> None:
    script = "cd /code\npython3 train.py \\\n  --note='it is here'\n"
    entrypoint = shlex.join(["exec", "python3", "/etc/rlt/run_command.py", "--", "bash", "-c", script])
    assert extract_error(f"Running entrypoint for job x: {entrypoint}\nboom\n") == "boom"
    assert extract_error(f"Running entrypoint for job x: {entrypoint}\n") == ""


def test_an_entrypoint_whose_end_is_missing_hides_no_output() -> None:
    assert extract_error("Running entrypoint for job x: bash -c 'a\nboom\n") == "boom"


def test_the_metrics_of_a_step_do_not_count_as_an_error() -> None:
    assert extract_error("[training] step 1 of 9\nstep:1 - actor/pg_loss:0.5\n") == "[training] step 1 of 9"


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Job entrypoint command failed with exit code 137, last available logs (truncated):\nx", "SIGKILL"),
        ("Job entrypoint command failed with exit code 139. No logs available.", "SIGSEGV"),
        ("Job entrypoint command failed with exit code 143, last available logs", None),
        ("Job entrypoint command failed with exit code 1, last available logs", None),
        ("Job entrypoint command failed with exit code 255. No logs available.", None),
        ("", None),
    ],
)
def test_the_signal_that_ended_the_program_is_found(message: str, name: str | None) -> None:
    assert find_signal(message) == name


def test_long_output_keeps_its_end() -> None:
    message = extract_error("x" * 5000 + "\nthe end")
    assert message == "the end"
    assert extract_error("x" * 5000).startswith("…x")
