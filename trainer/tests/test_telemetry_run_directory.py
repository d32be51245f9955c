"""A run directory that cannot be written fails the run at the start, and never stops the training later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from file_size import limit_file_size

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.spec.training_config import ResolvedTraining, RunBucket, TrainingConfig
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.run_directory import RunDirectory

CONFIG = TrainingConfig(
    job="j",
    namespace="n",
    run_directory="/runs/j",
    workers=2,
    devices_per_worker=0,
    cpus_per_worker=1,
    model=Model(from_seed=SeededModel()),
    data=Data(preset="arithmetic"),
    rewards=[Reward(name="exact")],
    algorithm=Algorithm(),
    training=ResolvedTraining(total_steps=1, ppo_mini_batch_size=128),
    rollout=Rollout(),
    checkpoint=Checkpoint(),
)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_config_reads_back(tmp_path: Path) -> None:
    RunDirectory(tmp_path).write_config(CONFIG)
    assert TrainingConfig.model_validate_json((tmp_path / "config.json").read_text()) == CONFIG


def test_metrics_have_one_line_per_step_after_a_restart(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "new" / "run").append_metrics(1, {"actor/entropy": 0.5})
    RunDirectory(tmp_path / "new" / "run").append_metrics(2, {"actor/entropy": 0.25})
    expected = [{"step": 1, "actor/entropy": 0.5}, {"step": 2, "actor/entropy": 0.25}]
    assert lines(tmp_path / "new" / "run" / "metrics.jsonl") == expected


def test_an_incomplete_line_does_not_affect_the_next_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "act')
    RunDirectory(tmp_path).append_metrics(2, {"a": 1.0})
    written = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert written == ['{"step": 1}', '{"step": 2, "act', '{"step": 2, "a": 1.0}']


def test_a_full_disk_loses_whole_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = RunDirectory(tmp_path)
    run.append_metrics(1, {"a": 1.0})
    with limit_file_size(30):
        run.append_metrics(2, {"a": 2.0})
    run.append_metrics(3, {"a": 3.0})
    assert [line["step"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 3]
    assert "metrics.jsonl cannot be written" in caplog.text


def test_values_that_json_does_not_support_become_null(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.append_metrics(1, {"a": float("nan"), "b": float("inf")})
    run.write_rollouts(1, [{"logprobs": [0.5, float("-inf")], "response": "é\udc80"}])
    assert lines(tmp_path / "metrics.jsonl") == [{"step": 1, "a": None, "b": None}]
    assert lines(tmp_path / "rollouts" / "step-1.jsonl") == [{"logprobs": [0.5, None], "response": "é\udc80"}]


def test_a_repeated_step_replaces_its_rollouts(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_rollouts(5, [{"response": "a"}, {"response": "b"}])
    run.write_rollouts(5, [{"response": "c"}])
    assert [path.name for path in (tmp_path / "rollouts").iterdir()] == ["step-5.jsonl"]
    assert lines(tmp_path / "rollouts" / "step-5.jsonl") == [{"response": "c"}]


def test_an_evaluation_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ValueError("not Unicode")

    run = RunDirectory(tmp_path)
    run.write_evaluation("sums", 1, fail, lambda folder, step: [])
    run.write_evaluation("sums", 2, lambda: b"parquet", lambda folder, step: [])
    assert [path.name for path in (tmp_path / "evaluation/sums").iterdir()] == ["step-2.parquet"]
    assert "evaluation cannot be written" in caplog.text
    assert "not Unicode" in caplog.text


def test_a_directory_that_cannot_be_created_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=rf"run directory {tmp_path}/file/run cannot be written.*Verify spec.storage"):
        RunDirectory(tmp_path / "file" / "run")


def test_a_later_failure_is_logged_once_for_each_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = RunDirectory(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.unlink()
    metrics.mkdir()
    for step in (1, 2):
        run.append_metrics(step, {"a": 1.0})
        run.write_rollouts(step, [{"not JSON": object()}])
    assert [record.message.split()[0] for record in caplog.records] == ["metrics.jsonl", "rollouts"]
    metrics.rmdir()
    run.append_metrics(3, {"a": 1.0})
    assert lines(metrics) == [{"step": 3, "a": 1.0}]


def test_checkpoints_and_export_are_in_the_run_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert (run.checkpoints, run.export) == (tmp_path / "checkpoints", tmp_path / "export")
    assert run.locate(run.export) == str(run.export)
    run = RunDirectory(tmp_path, BucketLease(RunBucket(url="s3://runs/a"), 3))
    assert run.export == tmp_path / "export/3"
    assert run.locate(run.export) == "s3://runs/a/export/3"
    assert run.locate(tmp_path.parent) == str(tmp_path.parent)
    assert run.checkpoints.is_dir()
