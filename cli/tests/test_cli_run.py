"""rlt run --local."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from click.testing import CliRunner, Result
from recorded_page import assert_page_shows
from verl_jobs import VERL

from rlt.local_run import build_local_run
from rlt_cli.main import cli
from rlt_core.job import Job

TINY: dict[str, Any] = {
    "model": {"fromSeed": {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2}},
    "data": {"preset": "arithmetic", "maxPromptLength": 8, "maxResponseLength": 5},
    "training": {"totalSteps": 2, "trainBatchSize": 4},
    "rollout": {"engine": "transformers", "responsesPerPrompt": 2},
    "cluster": {"image": "i", "workers": [{"resources": {"cpu": "1", "memory": "4Gi"}}]},
}


def manifest(spec: dict[str, Any]) -> str:
    metadata = {"name": "tiny"}
    return yaml.safe_dump(
        {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": metadata, "spec": spec}
    )


def command_spec(*command: str, **cluster: Any) -> dict[str, Any]:
    return {"framework": {"type": "command", "command": list(command)}, "cluster": {**TINY["cluster"], **cluster}}


def rlt(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["run", *arguments], input=input)


Start = Callable[[dict[str, Any]], "subprocess.Popen[str]"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Start]:
    """Starts `rlt run --local` for a spec in its own process group, which is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(spec: dict[str, Any]) -> subprocess.Popen[str]:
        (tmp_path / "job.yaml").write_text(manifest(spec))
        running = subprocess.Popen(
            [sys.executable, "-m", "rlt_cli.main", "run", "--local", "job.yaml"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=restore_sigint,
        )
        started.append(running)
        return running

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def restore_sigint() -> None:
    """Handle SIGINT as in a terminal: children of a background job inherit that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def with_spec(job: Job) -> tuple[Job, Any]:
    assert job.spec, job.findings
    return job, job.spec


def test_paths_below_the_mount_path_become_paths_below_the_directory() -> None:
    storage = {"claimName": "c", "mountPath": "/mnt/runs"}
    model = {"path": "/mnt/runs/models/qwen"}
    spec = {**o.SPEC, "storage": storage, "model": model, "data": {"preset": "gsm8k", "path": "/mnt/runsx/gsm8k"}}
    run = build_local_run(*with_spec(o.job(spec)), Path("/home/me/out"))
    assert run.config
    assert run.config.run_directory.startswith("/home/me/out/runs/sum-")
    assert run.config.model.path == "/home/me/out/models/qwen"
    assert run.config.data.path == "/mnt/runsx/gsm8k"
    assert run.command[1:] == ("-m", "rlt_trainer", "run", "--config", str(run.config_file), "--local")


def test_paths_in_the_arguments_of_verl_are_local() -> None:
    run = build_local_run(*with_spec(o.job(VERL)), Path("/home/me/out"))
    assert "data.train_files=[/home/me/out/gsm8k/train.parquet]" in run.command
    assert run.command[run.command.index("--checkpoints") + 1].startswith("/home/me/out/runs/")
    assert [word for word in run.command if "/mnt/rlt" in word] == []


def test_without_local_the_error_has_the_next_command() -> None:
    done = rlt("-", input=manifest(TINY))
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "next: rlt submit -"


def test_without_the_trainer_the_error_has_the_next_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = rlt("--local", "-", "--directory", str(tmp_path), input=manifest(TINY))
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "next: pip install ./pod ./api ./trainer    # in a clone of rlt"


def test_a_job_that_only_the_operator_finds_is_rejected(tmp_path: Path) -> None:
    spec = {**TINY, "storage": {"claimName": "runs"}, "checkpoint": {"resume": "job", "resumeFromJob": "stage-1"}}
    done = rlt("--local", "-", "--directory", str(tmp_path), input=manifest(spec))
    assert done.exit_code == 1
    assert "spec.checkpoint.resumeFromJob: stage-1 is found on Kubernetes alone" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_command_runs_with_its_environment_and_ends_with_its_exit_code(process: Start, tmp_path: Path) -> None:
    script = 'echo "step:1 - critic/score/mean:0.5 - $WHERE - $SECRET"; exit 1'
    env = [
        {"name": "WHERE", "value": "/mnt/rlt/x"},
        {"name": "SECRET", "secretKeyRef": {"name": "s", "key": "k"}},
    ]
    run = process(command_spec("sh", "-c", script, env=env))
    out, messages = run.communicate(timeout=300)
    assert run.returncode == 1
    assert out.splitlines()[0] == f"step:1 - critic/score/mean:0.5 - {tmp_path}/out/x - "
    assert "note: SECRET is set from a Secret or ConfigMap: its value is taken from this shell" in messages


def test_what_is_not_run_locally_is_noted(tmp_path: Path) -> None:
    spec = command_spec("true")
    spec["framework"] |= {"prepare": [{"name": "data", "command": ["false"]}], "runtimeEnv": {"pip": ["a"]}}
    done = rlt("--local", "-", "--directory", str(tmp_path), input=manifest(spec))
    assert done.exit_code == 0
    assert "note: step data of framework.prepare is not run" in done.stderr
    assert "note: framework.runtimeEnv is not applied" in done.stderr


def test_json_output_is_one_object_per_line(tmp_path: Path) -> None:
    spec = command_spec("sh", "-c", "echo step:1 - a:1; printf bye; exit 3")
    done = rlt("--local", "-", "--directory", str(tmp_path), "-o", "json", input=manifest(spec))
    assert done.exit_code == 3
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"source": "program", "line": "step:1 - a:1"} in printed
    assert "bye" in [each["line"] for each in printed]


def test_an_interrupt_reaches_the_command_and_its_exit_code_is_kept(process: Start) -> None:
    script = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "print('up', flush=True)\nsignal.sigwait([signal.SIGINT])\nprint('saved')\nraise SystemExit(7)"
    )
    run = process(command_spec(sys.executable, "-c", script))
    assert run.stdout
    assert run.stdout.readline() == "up\n"
    os.killpg(run.pid, signal.SIGINT)
    out, messages = run.communicate(timeout=300)
    assert "saved" in out
    assert run.returncode == 7
    assert "stopping" in messages


@pytest.mark.slow
def test_the_page_shows_a_run_and_a_second_one_of_the_same_job_resumes(process: Start, tmp_path: Path) -> None:
    spec = {**TINY, "checkpoint": {"saveFreq": 1}}
    first = process(spec)
    out, messages = first.communicate(timeout=600)
    assert first.returncode == 0, messages
    assert [line[:7] for line in out.splitlines() if line.startswith("step:")] == ["step:1 ", "step:2 "]
    (directory,) = re.findall("run directory: (.*)", messages)
    lines = (Path(directory) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert Path(directory).parent == tmp_path / "out/runs"
    assert_page_shows(Path(directory))

    again = process(spec)
    out, _ = again.communicate(timeout=600)
    assert again.returncode == 0
    assert "step:" not in out


@pytest.mark.slow
def test_an_interrupt_stops_the_training_without_a_traceback(process: Start) -> None:
    run = process({**TINY, "training": {"totalSteps": 10_000, "trainBatchSize": 4}})
    assert run.stdout
    assert any(line.startswith("step:2 ") for line in run.stdout)
    os.killpg(run.pid, signal.SIGINT)
    _, messages = run.communicate(timeout=300)
    assert run.returncode == 130
    assert messages.splitlines()[-1] == "rlt-trainer: interrupted"
    assert "Traceback" not in messages
