"""verl 0.9.1 itself, on the CPU: its model merger, and the command of a job that trains for two steps."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from verl_jobs import VERL

from rlt_api.frameworks.export import build_export
from rlt_api.frameworks.run import Run
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.entrypoint import build_run_command_arguments
from rlt_core.job import parse_job
from rlt_e2e.verl_cpu_job import VARIABLES, build_manifest, write_model
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_pod.report.step_line import parse_step_line
from separate_environment import install

TOOLS = Path(__file__).parents[2] / "tools"
pytestmark = [pytest.mark.slow, pytest.mark.long]


def merge(python: Path, run: Run, step: int) -> Path:
    """Run the program that exports a job's checkpoint, without Ray. Return the folder of the model."""
    spec = RLTrainingJobSpec.model_validate(add_accelerator_defaults(VERL), by_alias=True, by_name=False)
    export = build_export(spec, run, on_a_worker=False)
    assert export
    assert export.command[0] == "python3"
    subprocess.run([python, *(word.replace("{step}", str(step)) for word in export.command[1:])], check=True)
    return Path(export.directory)


@pytest.fixture(scope="module")
def python() -> Path:
    return install("verl-cpu", "--no-deps", "--compile-bytecode", on_top=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """The volume of the job, with a path short enough for Ray's sockets."""
    path = Path(tempfile.mkdtemp(prefix="rlt-verl-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def train(python: Path, manifest: dict[str, Any], folder: Path) -> str:
    """Run the program of the job as its entrypoint does, with the plugin for CPUs. Return its output."""
    job = parse_job(manifest)
    assert job.spec, job.findings
    arguments = build_run_command_arguments(job, job.spec, on_a_worker=False)
    paths = [str(TOOLS), str(folder), os.environ.get("PYTHONPATH", "")]
    variables = {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        [sys.executable, "-m", "rlt_pod.command.run_command", "--port", "0", *arguments],
        env={**os.environ, **VARIABLES, **variables},
        cwd=folder,  # Hydra writes to the folder outputs
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def read_steps(output: str) -> dict[int, dict[str, float]]:
    """The metrics of each step in the output."""
    return dict(found for line in output.splitlines() if (found := parse_step_line(line)))


def test_a_job_trains_two_steps_and_resumes_for_a_third(python: Path, model: Path, folder: Path) -> None:
    output = train(python, build_manifest(model, folder, 2), folder)
    steps = read_steps(output)
    report = parse_last_report(output)
    assert list(steps) == [1, 2]
    for metrics in steps.values():
        assert math.isfinite(metrics["actor/pg_loss"])
        assert metrics["actor/grad_norm"] > 0
        assert 0 < metrics["critic/rewards/mean"] < 1
        # vLLM starts with its own random weights: it has the trainer's, also after the first update.
        assert metrics["training/rollout_actor_probs_pearson_corr"] > 0.999
        assert metrics["training/rollout_probs_diff_max"] < 1e-6
    assert report
    assert (report.stage, report.step, report.total_steps, report.latest_checkpoint_step) == ("finished", 2, 2, 2)
    assert report.metrics.reward == steps[2]["critic/rewards/mean"]
    assert report.exported_path
    trained = load_file(f"{report.exported_path}/model.safetensors")
    start = load_file(model / "model.safetensors")
    assert trained.keys() == start.keys()
    assert not all(trained[name].equal(start[name].bfloat16()) for name in start)
    assert list(read_steps(train(python, build_manifest(model, folder, 3), folder))) == [3]
    history = read_history(folder / "runs/tiny-11111111" / METRICS_FILE, after=0).splitlines()
    assert [json.loads(line)["step"] for line in history] == [1, 2, 3]
    assert json.loads(history[1])["critic/rewards/mean"] == report.metrics.reward


def test_the_merged_model_has_the_weights_of_the_shards(python: Path, model: Path, tmp_path: Path) -> None:
    """verl saves two shards. Its merger rounds to bfloat16."""
    run = Run("tiny", "test", str(tmp_path))
    script: list[str | Path] = [python, "-W", "ignore", TOOLS / "save_verl_checkpoint.py", model]
    subprocess.run([*script, f"{run.checkpoints}/global_step_1/actor"], check=True)
    merged = load_file(merge(python, run, 1) / "model.safetensors")
    weights = load_file(model / "model.safetensors")
    assert merged.keys() == weights.keys()
    assert all(merged[name].equal(weights[name].bfloat16()) for name in weights)
