"""Whole runs with Ray and two train workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import train
from trained_families import FAMILIES, write_model

from rlt_api.spec.training_config import ProgressReport, TrainingConfig
from rlt_pod.report.driver_report import PROGRESS_PREFIX
from rlt_trainer.__main__ import main
from rlt_trainer.driver.run import run

MakeConfig = Callable[..., TrainingConfig]


def last_report(output: str) -> ProgressReport:
    """Parse the report in the last line."""
    last = output.splitlines()[-1]
    assert last.startswith(PROGRESS_PREFIX), output
    return ProgressReport.model_validate_json(last.removeprefix(PROGRESS_PREFIX))


def metrics(config: TrainingConfig) -> list[dict[str, Any]]:
    """Read the run's metrics without time measurements."""
    lines = (Path(config.run_directory) / "metrics.jsonl").read_text().splitlines()
    timed = ("timing_", "overlap_s/", "perf/")
    return [{key: value for key, value in json.loads(line).items() if not key.startswith(timed)} for line in lines]


@pytest.mark.slow
def test_three_steps_with_vllm_on_two_ranks(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(rollout={"engine": "vllm"}, training={"warmup": {"steps": 2, "batchSize": 8}})
    file = tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    report = last_report(done.stdout)
    assert (report.stage, report.step, report.total_steps) == ("finished", 3, 3)
    steps = metrics(config)
    assert [step["training/global_step"] for step in steps] == [1, 2, 3]
    for name in ("training/weight_sync_difference", "rollout_corr/log_ppl_abs_diff"):
        assert all(step[name] < 1e-4 for step in steps), name
    assert all(value is not None for step in steps for value in step.values())


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_run_of_two_ranks_resumes_on_one(make_config: MakeConfig, tmp_path: Path) -> None:
    def config(name: str, *, workers: int, steps: int) -> TrainingConfig:
        return make_config(
            workers=workers,
            rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],  # random weights earn it sometimes
            training={"totalSteps": steps},
            checkpoint={"saveFreq": 3},
            runDirectory=str(tmp_path / name),
        )

    run(config("parts", workers=2, steps=3), local=False)
    parts, whole = (train(config(name, workers=1, steps=6)) for name in ("parts", "whole"))
    for ours, theirs in zip(parts, whole, strict=True):
        for name in ("critic/score/mean", "response_length/mean", "actor/entropy", "actor/grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3), (ours["step"], name)
        assert ours["actor/grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_mixture_on_two_ranks_has_the_steps_of_one(make_config: MakeConfig, tmp_path: Path) -> None:
    """The ranks split its experts, and all of them change the biases of its routers. Each sync is verified."""
    import torch
    from transformers import AutoModelForCausalLM

    write_model(FAMILIES["GLM-4 MoE"], tmp_path / "model")

    def config(name: str, *, workers: int) -> TrainingConfig:
        return make_config(
            workers=workers,
            rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
            model={"fromSeed": None, "path": str(tmp_path / "model")},
            algorithm={"routerBiasUpdateRate": 0.01},
            training={"expertParallelSize": workers},
            runDirectory=str(tmp_path / name),
        )

    run(config("parts", workers=2), local=False)
    parts = metrics(config("parts", workers=2))
    whole = train(config("whole", workers=1))
    for ours, theirs in zip(parts, whole, strict=True):
        assert ours["training/weight_sync_difference"] < 1e-4
        for name in ("critic/score/mean", "actor/grad_norm", "actor/expert_load_max", "actor/expert_load_entropy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3), (ours["step"], name)
    exported = [AutoModelForCausalLM.from_pretrained(tmp_path / name / "export") for name in ("parts", "whole")]
    for (name, ours), theirs in zip(exported[0].state_dict().items(), exported[1].state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_the_exported_model_is_the_trained_one(make_config: MakeConfig, capsys: pytest.CaptureFixture[str]) -> None:
    import torch
    from torch.distributed.checkpoint.state_dict_loader import load
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = make_config(training={"totalSteps": 1}, checkpoint={"saveFreq": 1})
    run(config, local=False)
    report = last_report(capsys.readouterr().out)
    assert report.exported_path
    model = AutoModelForCausalLM.from_pretrained(report.exported_path)
    saved: dict[str, Any] = {"model": {name: torch.empty_like(value) for name, value in model.state_dict().items()}}
    load(saved, checkpoint_id=f"{config.run_directory}/checkpoints/step-1")
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert all(torch.equal(saved["model"][name], value) for name, value in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(report.exported_path).decode([52, 50]) == "42"
    assert model.generation_config.eos_token_id == model.config.eos_token_id


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_an_error_of_a_worker_is_reported_in_one_line(
    make_config: MakeConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
    from rlt_trainer.data.seeded_model import build_seeded_config

    broken = tmp_path / "broken"
    build_byte_tokenizer().save_pretrained(broken)
    seeded = make_config().model.from_seed
    assert seeded is not None
    build_seeded_config(seeded).save_pretrained(broken)
    config = make_config(model={"fromSeed": None, "path": str(broken)})
    file = tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    assert main(["run", "--config", str(file)]) == 1
    output, errors = capfd.readouterr()
    assert errors.splitlines()[-1].startswith(f"rlt-trainer: error: model.path {broken}: ")
    assert "Traceback" not in errors
    assert last_report(output).stage == "preparing"
