"""The program that starts ROLL's driver on a worker: the checkpoint, the config and the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt_api.frameworks.roll import LAUNCHER, RESUME_VARIABLE
from rlt_core.command.checkpoints import find_roll_checkpoint, read_latest_step
from rlt_core.command.run_roll import VARIABLE, build_config_options, find_node


def save(directory: Path, attempt: str, step: int, *, complete: bool = True) -> Path:
    """Write the folder of a checkpoint."""
    folder = directory / attempt / f"checkpoint-{step}"
    (folder / "pipeline").mkdir(parents=True)
    if complete:
        (folder / "pipeline/worker_state_pipeline.json").touch()
    return folder


def test_the_latest_checkpoint_is_that_of_the_latest_attempt_with_a_complete_one(tmp_path: Path) -> None:
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


def test_names_are_those_of_the_config() -> None:
    assert VARIABLE == RESUME_VARIABLE
    assert LAUNCHER == "run_roll.py"
