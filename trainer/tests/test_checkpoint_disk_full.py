"""A full disk fails the save of a checkpoint, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from file_size import limit_file_size
from torch import nn
from torch.distributed.checkpoint.stateful import Stateful

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.export import replace_directory, write_shards
from rlt_trainer.checkpoint.marker import find_latest_step
from rlt_trainer.checkpoint.parts import ModelState
from rlt_trainer.checkpoint.resume import resume
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.errors import TrainingError


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("size", [0, 10, 5000], ids=["nothing", "not the driver's state", "not the weights"])
def test_the_training_continues_with_a_warning(size: int, asynchronous: bool, tmp_path: Path) -> None:
    model = nn.Linear(100, 100)
    parts = {"model": ModelState(model)}
    saver = Saver(tmp_path, Checkpoint(asynchronous=asynchronous, max_to_keep=1))
    saver.save(1, parts, DriverState({"consumed": 12345}))
    saver.collect_outcomes(wait=True)
    with limit_file_size(size):
        outcomes = [*saver.save(2, parts, DriverState({"consumed": 12345})), *saver.collect_outcomes(wait=True)]
    assert [outcome.step for outcome in outcomes] == [2]
    error = outcomes[0].error or ""
    assert f"step 2 could not be saved to {tmp_path} (rank 0: " in error
    assert "MiB free" in error
    assert error.endswith("The training continues; the latest checkpoint is step-1.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-1"]
    assert resume(tmp_path, Checkpoint(), parts) is not None

    assert [each.error for each in [*saver.save(3, parts, DriverState()), *saver.collect_outcomes(wait=True)]] == [None]
    assert find_latest_step(tmp_path) == 3


class Broken(Stateful):
    """State that cannot be saved, for a reason other than the disk."""

    def state_dict(self) -> dict[str, object]:
        return {"lambda": lambda: None}

    def load_state_dict(self, state: dict[str, object]) -> None:
        raise AssertionError


@pytest.mark.usefixtures("one_rank")
def test_other_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="checkpoint of step 1 could not be saved"):
        Saver(tmp_path, Checkpoint()).save(1, {"broken": Broken()}, DriverState())


def test_an_export_that_does_not_fit_fails_and_keeps_the_earlier_one(tmp_path: Path) -> None:
    with replace_directory(tmp_path / "export") as partial:
        (partial / "config.json").write_text("{}")
    failure = pytest.raises(TrainingError, match=r"export: .*MiB free.*`rlt-trainer export`")
    with failure, limit_file_size(1000), replace_directory(tmp_path / "export") as partial:
        write_shards([("weight", torch.zeros(1000))], partial, max_bytes=10**9)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["export", "export/config.json"]
