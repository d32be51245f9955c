"""The lease of a run directory: the program of an earlier attempt writes nothing once a later one has it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.__main__ import main
from rlt_trainer.checkpoint import marker
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.telemetry.lease import FOLDER, Lease, LeaseLostError
from rlt_trainer.telemetry.run_directory import RunDirectory


class Weights:
    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"weight": torch.ones(2)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Not used."""


class Interrupted(Weights):
    """Weights whose shards are written while a later attempt takes the lease."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def state_dict(self) -> dict[str, torch.Tensor]:
        Lease.take(self._run, 2, "later")
        return super().state_dict()


def test_a_later_attempt_ends_the_writes_of_an_earlier_one(tmp_path: Path) -> None:
    lease = Lease.take(tmp_path, 1, "sum-1")
    run = RunDirectory(tmp_path, lease)
    run.append_metrics(1, {"loss": 0.5})
    before = (tmp_path / "metrics.jsonl").read_text()
    Lease.take(tmp_path, 2, "sum-1-2")
    with pytest.raises(LeaseLostError, match=r"Attempt 1 \(sum-1\) has lost the lease .* attempt 2, sum-1-2"):
        run.append_metrics(2, {"loss": 0.4})
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_an_earlier_attempt_does_not_take_the_lease_back(tmp_path: Path) -> None:
    later = Lease.take(tmp_path, 2, "sum-2")
    with pytest.raises(LeaseLostError, match="attempt 2"):
        Lease.take(tmp_path, 1, "sum-1")
    later.check()
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["2"]


def test_a_resumed_attempt_takes_the_lease_of_its_earlier_ray_job(tmp_path: Path) -> None:
    suspended = Lease.take(tmp_path, 1, "sum-1")
    Lease.take(tmp_path, 1, "sum-2").check()
    with pytest.raises(LeaseLostError):
        suspended.check()


def test_of_attempts_that_start_at_the_same_time_only_the_last_one_keeps_the_lease(tmp_path: Path) -> None:
    for number in range(50):
        run = tmp_path / str(number)
        start = threading.Barrier(4)
        taken: list[Lease] = []

        def take(attempt: int, run: Path = run, start: threading.Barrier = start, taken: list[Lease] = taken) -> None:
            start.wait()
            try:
                taken.append(Lease.take(run, attempt, f"sum-{attempt}"))
            except LeaseLostError:
                return

        threads = [threading.Thread(target=take, args=(attempt,)) for attempt in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [lease.attempt for lease in taken if is_held(lease)] == [4]


def is_held(lease: Lease) -> bool:
    try:
        lease.check()
    except LeaseLostError:
        return False
    return True


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("taken_during_the_save", [False, True])
def test_a_checkpoint_without_the_lease_is_not_committed(taken_during_the_save: bool, tmp_path: Path) -> None:
    lease = Lease.take(tmp_path, 1, "sum-1")
    saver = Saver(tmp_path / "checkpoints", Checkpoint())
    saver.save(1, {"model": Weights()}, DriverState(), lease=lease)
    weights = Interrupted(tmp_path) if taken_during_the_save else Weights()
    if not taken_during_the_save:
        Lease.take(tmp_path, 2, "later")
    with pytest.raises(RuntimeError, match="has lost the lease"):
        saver.save(2, {"model": weights}, DriverState(), lease=lease)
    assert marker.find_latest_step(tmp_path / "checkpoints") == 1


def test_a_late_start_of_an_earlier_attempt_fails_before_it_writes(
    make_config: Callable[..., TrainingConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    Lease.take(run, 2, "sum-1-2")
    file = tmp_path / "training.json"
    file.write_text(make_config(runDirectory=str(run)).model_dump_json(by_alias=True))
    code = main(["run", "--config", str(file), "--local", "--attempt", "1", "--holder", "sum-1"])
    assert code == 1
    assert "has lost the lease" in capsys.readouterr().err
    assert [path.name for path in run.iterdir()] == [FOLDER]
