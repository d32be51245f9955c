"""The progress of slime, Miles, NeMo-RL, SkyRL, prime-rl and TRL from their output.

The files in console have the lines of these programs in their format, with other values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlt_api.spec.training_config import ProgressReport
from rlt_pod.command.checkpoints import read_latest_step
from rlt_pod.command.console import Progress, build_report, update

CONSOLE = Path(__file__).parent / "console"
Metrics = dict[str, float]

EXPECTED: dict[str, tuple[int, int, float | None, float | None, Metrics]] = {
    "slime": (
        2, 0, 105.0, None,
        {
            "reward": 0.4765625, "kl": 0.0034, "entropy": 0.279, "responseLength": 1402.0, "loss": 0.00012,
            "gradNorm": 0.198, "clipFraction": 0.0007,
        },
    ),
    "nemo_rl": (2, 500, 47.65, 5571.3, {"reward": 0.3438, "responseLength": 411.0, "loss": -0.0041}),
    "skyrl": (
        4, 0, 31.5, None,
        {
            "reward": 0.5312, "kl": 0.0012, "entropy": 0.401, "responseLength": 288.25, "loss": 0.0103,
            "gradNorm": 0.312, "clipFraction": 0.0005,
        },
    ),
    "prime_rl": (2, 0, 40.2, 20911.0, {"reward": 0.2519, "entropy": 0.504, "loss": 0.0019, "gradNorm": 0.175}),
    "trl": (
        11, 200, 18.85, None,
        {"reward": 0.4062, "kl": 0.0035, "entropy": 0.6, "responseLength": 201.0, "loss": 0.0009, "gradNorm": 0.201},
    ),
}  # fmt: skip
"""File -> step, number of steps, mean seconds of a step, tokens per second, and the metrics of the last step."""


def follow(lines: list[str]) -> list[dict[str, Any]]:
    """Return the report after each line, which come 2 s apart, once there is one."""
    progress = Progress(0.0)
    reports = []
    for number, line in enumerate(lines):
        progress = update(progress, line, number * 2.0)
        if report := build_report(progress):
            reports.append(report)
    return reports


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_has_its_step_metrics_and_speed(name: str) -> None:
    step, total, seconds, tokens, metrics = EXPECTED[name]
    last = follow((CONSOLE / f"{name}.txt").read_text().splitlines())[-1]
    assert (last["step"], last["totalSteps"]) == (step, total)
    assert last["secondsPerStep"] == pytest.approx(seconds)
    assert last.get("tokensPerSecond") == tokens
    assert last["metrics"] == metrics
    assert ProgressReport.model_validate(last).step == step


@pytest.mark.parametrize("name", EXPECTED)
def test_the_step_never_decreases(name: str) -> None:
    steps = [each["step"] for each in follow((CONSOLE / f"{name}.txt").read_text().splitlines())]
    assert steps == sorted(steps)


def test_slime_has_no_step_before_its_training() -> None:
    lines = (CONSOLE / "slime.txt").read_text().splitlines()
    trained = next(index for index, line in enumerate(lines) if "perf/train_time" in line)
    assert not follow(lines[:trained])
    assert follow(lines[: trained + 1])[-1]["step"] == 1


def test_a_rollout_of_slime_without_a_performance_ends_with_the_next() -> None:
    lines = [line for line in (CONSOLE / "slime.txt").read_text().splitlines() if "perf/train_time" not in line]
    (*_, last) = follow(lines)
    assert (last["step"], last["metrics"]["reward"]) == (1, 0.421875)


@pytest.mark.parametrize(
    "line",
    [
        "Step 3: loss went down",
        "  • Loss: 0.1",
        "Step 3 | done",
        "{'loss': 0.1, 'reward': 0.5}",
        " 'policy/policy_loss': '0.1'}",
        "perf 3: {'perf/train_time': 3.0}",
        "==== Step 3/5 ====",
    ],
)
def test_other_lines_have_no_step(line: str) -> None:
    assert not follow([line])


@pytest.mark.parametrize(
    ("files", "step"),
    [
        (["latest_ckpt_global_step.txt"], 30),
        (["step_10/training_info.json", "step_30/training_info.json", "tmp_step_40/training_info.json"], 30),
        (["checkpoint-10/trainer_state.json", "checkpoint-30/trainer_state.json", "checkpoint-40/model.bin"], 30),
        (["latest_checkpointed_iteration.txt", "iter_0000030/common.pt"], 30),
        (["step_x/training_info.json", "notes.txt"], None),
    ],
)
def test_the_latest_complete_checkpoint_is_found(tmp_path: Path, files: list[str], step: int | None) -> None:
    for name in files:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("30")
    assert read_latest_step(str(tmp_path)) == step
