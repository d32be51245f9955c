"""What a command prints becomes its progress: lines and their times in, values out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from verl_output import VERL_BAR, VERL_LINE

from rlt_api.driver_report import METRICS
from rlt_api.prometheus_names import GAUGES
from rlt_api.status import ProgressMetrics
from rlt_api.training_config import ProgressReport
from rlt_core.command.console import Progress, finish, follow, report
from rlt_core.command.exposition import exposition
from rlt_trainer.telemetry.exposition import Snapshot, families

START = Progress(0.0)


def told(*lines: str, since: Progress = START) -> dict[str, Any]:
    """The report after the lines, one every 2 s."""
    seen = since
    for number, line in enumerate(lines, start=1):
        seen = follow(seen, line, number * 2.0)
    said = report(seen)
    assert said is not None
    assert ProgressReport.model_validate(said).step == said["step"]
    return said


def test_verls_line_has_every_metric() -> None:
    said = told(VERL_LINE)
    assert (said["stage"], said["step"], said["updated"]) == ("training", 34, "1970-01-01T00:00:02.000Z")
    assert said["metrics"] == {
        "reward": -0.0182796623557806,
        "kl": 0.0013280365410537343,
        "entropy": 0.22266578674316406,
        "responseLength": 1267.024169921875,
        "loss": 0.042396901015308686,
        "gradNorm": 0.129638671875,
        "clipFraction": 0.0007935191160472839,
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
def test_other_names_of_a_metric(pair: str, metrics: dict[str, float]) -> None:
    assert told(f"step:1 - {pair}")["metrics"] == metrics


@pytest.mark.parametrize(
    "line",
    [
        "Total training steps: 624",
        "\x1b[36m(TaskRunner pid=9)\x1b[0m Total training steps: 624",
        "Total training steps: 624,",
        VERL_BAR,
    ],
)
def test_the_total_is_read_from_the_programs_words(line: str) -> None:
    assert told(line)["totalSteps"] == 624


def test_the_users_total_counts_more() -> None:
    given = Progress(0.0, total_steps=100, total_is_given=True)
    assert told("Total training steps: 624", VERL_BAR, "step:3 - a:1", since=given)["totalSteps"] == 100


def test_a_total_is_never_below_the_step() -> None:
    assert told("Total training steps: 2", "step:3 - a:1")["totalSteps"] == 3


def test_without_a_total_there_is_none() -> None:
    assert told("step:3 - a:1")["totalSteps"] == 0


def test_a_bar_alone_counts_steps_and_lines_count_more() -> None:
    bar = "Training Progress:  10%|# | {}/50 [00:05<00:45,  5.0s/it]"
    assert told(bar.format(0), bar.format(1))["step"] == 1
    assert told(bar.format(0), "step:1 - a:1", bar.format(2))["step"] == 1


def test_lines_of_one_step_add_up_and_those_of_the_next_replace_them() -> None:
    first = ("step:1 - critic/rewards/mean:0.5", "step:1 - actor/kl_loss:0.1")
    assert told(*first)["metrics"] == {"reward": 0.5, "kl": 0.1}
    assert told(*first, "step:2 - actor/kl_loss:0.2")["metrics"] == {"kl": 0.2}


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
def test_the_duration_of_a_step_is_the_mean_of_the_latest(lines: list[str], seconds: float) -> None:
    """In the program's words, or by the clock: the lines come 2 s apart."""
    assert told(*lines)["secondsPerStep"] == seconds


def test_after_one_step_without_times_nothing_is_known_of_its_duration() -> None:
    assert "secondsPerStep" not in told("step:1 - a:1")


def test_tokens_are_those_of_all_workers() -> None:
    line = "step:1 - perf/total_num_tokens:3000 - timing_s/step:2.0 - perf/throughput:187.5"
    assert told(line)["tokensPerSecond"] == 1500.0


def test_a_command_without_steps_has_no_report() -> None:
    assert report(finish(follow(START, "hello step: 4", 1.0), 2.0)) is None


def test_every_metric_of_the_report_is_the_apis() -> None:
    assert ProgressMetrics.model_validate(dict.fromkeys(METRICS, 1.0))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_sees_what_it_sees_of_rlts_own_trainer() -> None:
    """Every metric that the trainer has a name for, one of a phase, one without a name, and what no float is."""
    keys = [gauge.verl for gauge in GAUGES if not gauge.verl.endswith("/*")]
    metrics = {key: float(number) for number, key in enumerate([*keys, "timing_s/gen", 'val/"x"'], start=2)}
    metrics = {**metrics, "training/global_step": 2.0, "actor/lr": float("inf")}
    line = " - ".join(["step:2", *(f"{key}:{value}" for key, value in metrics.items())])
    seen = follow(follow(START, "Total training steps: 4", 1.0), line, 8.0)
    said = ProgressReport.model_validate(report(seen))
    tokens = metrics["perf/total_num_tokens"]
    snapshot = Snapshot("sum", "demo", last_step_timestamp=8.0, report=said, metrics=metrics, tokens=tokens)
    expected = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(snapshot)
        for sample in family.samples
    }
    assert samples(exposition(seen, job="sum", namespace="demo")) == expected


def test_every_metric_says_what_it_is() -> None:
    lines = exposition(follow(START, "step:3 - actor/entropy:1 - a:1", 1.0), job="sum", namespace="demo").splitlines()
    types = [index for index, line in enumerate(lines) if line.startswith("# TYPE")]
    assert types
    for index in types:
        assert re.match(f"# HELP {lines[index].split()[2]} \\w", lines[index - 1])


def test_a_total_that_nobody_knows_is_no_metric() -> None:
    known, unknown = (
        exposition(follow(since, "step:3 - a:1", 1.0), job="sum", namespace="demo")
        for since in (Progress(0.0, total_steps=9), START)
    )
    assert "rlt_trainer_total_steps{" in known
    assert "rlt_trainer_total_steps{" not in unknown
