"""rlt compare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlt.report.comparison import compare_configurations
from rlt.report.summary import compute_throughput, compute_time_shares, find_step_reaching
from rlt_cli.main import cli
from rlt_cli.pages.comparison import choose_labels, format_comparison


def write_run(path: Path, *, slope: float, learning_rate: float, steps: int = 30) -> str:
    path.mkdir(parents=True)
    config = {
        "job": path.name,
        "training": {"totalSteps": 30, "learningRate": learning_rate},
        "runDirectory": str(path),
    }
    (path / "config.json").write_text(json.dumps(config))
    lines = [
        {
            "step": step,
            "critic/rewards/mean": min(1.0, slope * step),
            "val-core/sums/acc/mean@1": 0.5,
            "timing_s/gen": 3.0,
            "timing_s/update_actor": 1.0,
            "timing_s/step": 4.0,
            "perf/total_num_tokens": 400.0,
        }
        for step in range(1, steps + 1)
    ]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return str(path)


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    slow = write_run(tmp_path / "slow", slope=0.01, learning_rate=1e-6)
    fast = write_run(tmp_path / "fast", slope=0.02, learning_rate=2e-6, steps=20)
    return [slow, fast]


def write_scores(run: str, score: float, prompts: int = 20) -> None:
    file = Path(run) / "evaluation/math/scores.json"
    file.parent.mkdir(parents=True)
    scores = {f"{number}-a": [score, 1] for number in range(prompts)}
    file.write_text(json.dumps({"step": 20, "prompts": scores}))


def test_suites_have_their_paired_difference(runs: list[str]) -> None:
    assert "SUITE" not in rlt(*runs).stdout
    write_scores(runs[0], 0.5)
    write_scores(runs[1], 0.75)
    lines = rlt(*runs).stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("SUITE"))
    assert [re.split(" {3,}", line) for line in lines[start : start + 2]] == [
        ["SUITE", "RUN", "COMMON PROMPTS", "slow", "MEAN", "DIFFERENCE (95% INTERVAL)"],
        ["math", "fast", "20", "0.5", "0.75", "+0.2500 (+0.2500 to +0.2500)"],
    ]
    (difference,) = json.loads(rlt(*runs, "-o", "json").stdout)["suites"]["math"]
    assert difference == {"prompts": 20, "base": 0.5, "value": 0.75, "low": 0.25, "high": 0.25}


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def test_the_page_compares_configuration_metrics_and_throughput(runs: list[str]) -> None:
    done = rlt(*runs)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "RUN    PHASE        STEPS   FROM",
        f"slow   Complete     30      {runs[0]}",
        f"fast   Incomplete   20      {runs[1]}",
        "",
        "CONFIGURATION           slow    fast",
        "training.learningRate   1e-06   2e-06",
        "",
        "METRIC                       slow    fast",
        "reward, final                0.255   0.31 (+0.055)",
        "reward, best                 0.3     0.4 (+0.1)",
        "validation sums/acc, final   0.5     0.5 (+0)",
        "validation sums/acc, best    0.5     0.5 (+0)",
        "seconds a step, final        4       4 (+0)",
        "",
        "UNTIL REWARD 0.255   slow   fast",
        "steps                30     18 (-12)",
        "seconds              120    72 (-48)",
        "",
        "THROUGHPUT               slow   fast",
        "tokens per second        100    100 (+0)",
        "seconds a step, median   4      4 (+0)",
        "seconds of all steps     120    80 (-40)",
        "share of gen             0.75   0.75 (+0)",
        "share of update_actor    0.25   0.25 (+0)",
        "",
        "METRIC                slow              fast",
        "reward                ▁▁▁▂▂▃▃▃▄▄▅▅▆▆▆   ▁▁▂▂▂▃▃▄▄▄▅▅▆▆▆▇▇███",
        "validation sums/acc   ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄   ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄",
        "seconds a step        ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄   ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄",
        "",
        "final: the mean of the last 10 steps, of a validation the last one. "
        "The reward that a step reaches is the mean of 10 steps.",
    ]


def test_json_has_the_same_values(runs: list[str]) -> None:
    found = json.loads(rlt(*runs, "-o", "json", "--reward", "0.2").stdout)
    assert found["configuration"] == [{"field": "training.learningRate", "values": ["1e-06", "2e-06"]}]
    assert {"name": "reward, best", "values": [0.3, 0.4]} in found["metrics"]
    assert found["reached"][0] == {"name": "steps", "values": [25, 15]}
    assert [each["steps"] for each in found["runs"]] == [30, 20]


def test_the_page_fits_a_narrow_terminal(runs: list[str]) -> None:
    from rlt.report.comparison import compare_runs
    from rlt.runs.run import read_run

    comparison = compare_runs([read_run(Path(each)) for each in runs])
    assert max(map(len, format_comparison(comparison, ["slow", "fast"], 60).splitlines())) <= 60


def test_a_run_without_metrics_is_compared_as_far_as_possible(runs: list[str], tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/config.json").write_text("{}")
    done = rlt(runs[0], str(tmp_path / "new"))
    assert done.exit_code == 0
    assert "note: new: metrics.jsonl does not exist" in done.stderr
    assert (
        "reward, best             0.3    -" in done.stdout.replace("validation", "").splitlines() or "-" in done.stdout
    )


def test_two_to_eight_runs_are_accepted(runs: list[str]) -> None:
    assert rlt(runs[0]).exit_code == 2
    assert "pass 2 to 8 runs" in rlt(*runs[:1] * 9).stderr


def test_without_a_directory_of_this_name_it_is_a_job(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    done = rlt(runs[0], "qwen3-gsm8k")
    assert done.exit_code == 1
    assert "Cannot connect to a cluster" in done.stderr


def test_configurations_are_compared_by_path() -> None:
    first = {"rewards": [{"name": "a", "weight": 1.0}], "data": {"files": ["x"]}, "cluster": {"image": "i"}}
    second = {"rewards": [{"name": "a", "weight": 0.5}], "data": {"files": ["x"], "shuffle": False}}
    assert compare_configurations([first, second]) == {
        "rewards[0].weight": ("1.0", "0.5"),
        "data.shuffle": ("true", "false"),
    }


def test_a_field_that_a_block_lacks_has_its_default_and_numbers_are_equal_by_their_value() -> None:
    data = {"files": ["x"]}
    job: dict[str, Any] = {
        "training": {"totalSteps": 30, "learningRate": 1e-6, "gradClip": 1},
        "data": {**data, "shuffle": True},
        "rewards": [{"weight": 1}],
    }
    directory: dict[str, Any] = {
        "training": {"totalSteps": 30.0, "learningRate": 1e-06, "gradClip": 1.0},
        "data": data,
        "rewards": [{"name": "a"}],
    }
    assert compare_configurations([job, directory]) == {"rewards[0].name": (None, '"a"')}
    directory["training"]["gradClip"] = True
    assert compare_configurations([job, directory])["training.gradClip"] == ("1", "true")


def test_a_config_that_is_not_recorded_does_not_differ() -> None:
    configs: list[dict[str, Any]] = [{"data": {"seed": 1, "shuffle": True}}, {}, {"data": {"seed": 2, "shuffle": True}}]
    assert compare_configurations(configs) == {"data.seed": ("1", None, "2")}
    assert compare_configurations(configs[:2]) == {}


def test_characters_that_control_a_terminal_are_escaped() -> None:
    changed = compare_configurations([{"model": {"\x1b[2J": "a\x9b"}}, {"model": {}}])
    assert changed == {'model."\\u001b[2J"': ('"a\\u009b"', None)}


def test_labels_are_the_shortest_unique_names() -> None:
    assert choose_labels(["/a/run", "job", "/b/other/"]) == ["run", "job", "other"]
    assert choose_labels(["/a/run", "/b/run"]) == ["/a/run", "/b/run"]


def test_a_reward_is_reached_by_the_mean_of_ten_steps() -> None:
    steps = [
        {"step": step, "critic/rewards/mean": 1.0 if step in (3, *range(11, 31)) else 0.0} for step in range(1, 31)
    ]
    assert find_step_reaching(steps, 0.9) == (19, 0.0)
    assert find_step_reaching(steps, 1.1) is None
    assert find_step_reaching([], 0.5) is None


def test_shares_of_the_time_add_up_to_one() -> None:
    steps = [{"step": 1, "timing_s/gen": 3.0, "timing_s/unaccounted": 1.0, "timing_s/step": 4.0}]
    assert compute_time_shares(steps) == {"gen": 0.75, "unaccounted": 0.25}
    assert compute_throughput([]).tokens_per_second is None
