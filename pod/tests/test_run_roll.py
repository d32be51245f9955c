"""The program that starts ROLL's driver on a worker: the checkpoint, the config and the node."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rlt_api.frameworks.roll.settings import LAUNCHER, RESUME_VARIABLE
from rlt_core.knowledge.diagnosis import diagnose_logs
from rlt_pod.__main__ import PROGRAMS
from rlt_pod.command import run_roll
from rlt_pod.command.checkpoints import find_roll_checkpoint, read_latest_step
from rlt_pod.command.console import Progress, update
from rlt_pod.command.run_roll import VARIABLE, build_config_options, count_devices, describe, find_node, list_problems


def save(directory: Path, attempt: str, step: int, *, complete: bool = True) -> Path:
    """Write the folder of a checkpoint."""
    folder = directory / attempt / f"checkpoint-{step}"
    (folder / "pipeline").mkdir(parents=True)
    if complete:
        (folder / "pipeline/worker_state_pipeline.json").touch()
    return folder


def test_the_latest_checkpoint_is_from_the_latest_attempt_with_a_complete_one(tmp_path: Path) -> None:
    assert find_roll_checkpoint(str(tmp_path)) is None
    save(tmp_path, "20260101-000000", 40)
    latest = save(tmp_path, "20260102-000000", 20)
    save(tmp_path, "20260102-000000", 30, complete=False)
    save(tmp_path, "20260102-000000", 9)
    save(tmp_path, "pipeline", 90)  # ROLL's folder before the copy
    assert find_roll_checkpoint(str(tmp_path)) == (21, str(latest))
    assert read_latest_step(str(tmp_path)) == 21


def test_config_path_is_relative_to_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk/ROLL/examples").mkdir(parents=True)
    (tmp_path / "workspace").symlink_to(tmp_path / "disk/ROLL")
    monkeypatch.chdir(tmp_path / "workspace")
    options = build_config_options(f"{tmp_path}/etc/rlt/roll.yaml", ["python3", "examples/start_rlvr_pipeline.py"])
    assert options == ["--config_path", "../../../etc/rlt", "--config_name", "roll"]


def test_driver_runs_on_a_living_node_with_accelerators() -> None:
    nodes = [
        {"NodeID": "head", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 1.0}},
        {"NodeID": "dead", "Alive": False, "NodeManagerAddress": "10.0.0.2", "Resources": {"GPU": 8.0}},
        {"NodeID": "b", "Alive": True, "NodeManagerAddress": "10.0.0.4", "Resources": {"GPU": 8.0}},
        {"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.3", "Resources": {"GPU": 8.0}},
    ]
    assert find_node(nodes) == "a"
    assert find_node(nodes[:2]) is None
    assert count_devices(nodes) == 16


def test_names_are_read_from_the_config() -> None:
    assert VARIABLE == RESUME_VARIABLE
    assert PROGRAMS[LAUNCHER] == run_roll.__name__


CONFIG = {
    "max_steps": 500,
    "rollout_batch_size": 64,
    "actor_train": {"device_mapping": "list(range(0,16))", "training_args": {"per_device_train_batch_size": 1}},
    "actor_infer": {"device_mapping": "list(range(0,8))"},
}


@pytest.mark.parametrize(
    ("devices", "script", "changes", "lines", "ends"),
    [
        (16, "start_rlvr_pipeline.py", {}, [], False),
        (8, "start_agentic_pipeline.py", {}, ["actor_train.device_mapping: list(range(0,16)): names device 15"], True),
        (16, "start_rlvr_pipeline.py", {"rollout_batch_size": 24}, ["rollout_batch_size: 24: gives 24 respo"], False),
        (16, "start_agentic_pipeline.py", {"rollout_batch_size": 24}, [], False),
    ],
)
def test_config_is_compared_with_the_devices_of_the_cluster(
    devices: int, script: str, changes: dict[str, int], lines: list[str], ends: bool
) -> None:
    config = {**CONFIG, **changes}
    problems = list(list_problems(config, devices, f"/workspace/ROLL/examples/{script}"))
    *found, steps = describe(config, problems)
    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines
    assert any(each.ends for each in problems) == ends
    assert update(Progress(0.0), f"run_roll: {steps}", 1.0).total_steps == 500


def test_missing_devices_are_a_known_failure_of_the_job() -> None:
    output = "\n".join(f"run_roll: {line}" for line in describe(CONFIG, list(list_problems(CONFIG, 8, "a.py"))))
    assert [each.code for each in diagnose_logs([io.BytesIO(output.encode())])] == ["RollDeviceMapping"]


def test_config_that_cannot_be_read_is_reported() -> None:
    error = "ModuleNotFoundError: No module named 'hydra'"
    assert list(list_problems(error, 8, "start_rlvr_pipeline.py")) == []
    assert list(describe(error, [])) == [f"the config is not compared with the devices of the pods: {error}"]
