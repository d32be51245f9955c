"""A run resumes from its latest checkpoint, skips damaged ones, and rejects another model's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.checkpoint.driver_state import TENSORS, VALUES, DriverState
from rlt_trainer.checkpoint.marker import COMPLETE, find_latest_step
from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
from rlt_trainer.checkpoint.resume import describe_other_reference, list_candidates, load_reference, resume
from rlt_trainer.checkpoint.saver import Saver

pytestmark = pytest.mark.usefixtures("one_rank")
AUTO = Checkpoint()


class Learner:
    """A model with its optimizer."""

    def __init__(self, width: int = 3, *, seed: int = 0, learning_rate: float = 0.1) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(width, 4), nn.Linear(4, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, fused=True)
        self.width = width

    @property
    def parts(self) -> Parts:
        return {"model": ModelState(self.model), "optimizer": OptimizerState(self.model, (self.optimizer,))}

    def learn(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        self.model(torch.randn(5, self.width, generator=generator)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> list[float]:
        return [value for parameter in self.model.parameters() for value in parameter.flatten().tolist()]


def run(checkpoints: Path, steps: int, config: Checkpoint = AUTO) -> Learner:
    """Take `steps` steps, and save a checkpoint after each."""
    learner = Learner()
    saver = Saver(checkpoints, config)
    for step in range(1, steps + 1):
        learner.learn(step)
        outcomes = saver.save(step, learner.parts, DriverState({"consumed": step / 3}, {"queue": torch.arange(step)}))
        assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    assert all(outcome.error is None for outcome in saver.collect_outcomes(wait=True))
    return learner


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_run_is_identical_bit_for_bit(asynchronous: bool, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 4)
    run(tmp_path / "parts", 2, Checkpoint(asynchronous=asynchronous))
    rest = Learner(seed=1)
    resumed = resume(tmp_path / "parts", AUTO, rest.parts)
    assert resumed is not None
    assert (resumed.step, resumed.warnings) == (2, ())
    assert resumed.driver.values == {"consumed": 2 / 3}
    assert resumed.driver.tensors["queue"].tolist() == [0, 1]
    for step in (3, 4):
        rest.learn(step)
    assert rest.weights() == whole.weights()


def test_a_background_save_has_the_weights_at_its_start(tmp_path: Path) -> None:
    learner = Learner()
    saver = Saver(tmp_path, Checkpoint(asynchronous=True))
    before = learner.weights()
    assert saver.save(1, learner.parts, DriverState()) == []
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.zero_()
    assert [(outcome.step, outcome.error) for outcome in saver.collect_outcomes(wait=True)] == [(1, None)]
    assert saver.collect_outcomes(wait=True) == []
    resume(tmp_path, AUTO, learner.parts)
    assert learner.weights() == before


def test_never_and_an_empty_folder_start_from_the_beginning(tmp_path: Path) -> None:
    assert resume(tmp_path / "checkpoints", AUTO, Learner().parts) is None
    run(tmp_path / "checkpoints", 1)
    assert resume(tmp_path / "checkpoints", Checkpoint(resume="never"), Learner().parts) is None


def test_a_run_resumes_from_a_path_and_then_from_its_own_checkpoints(tmp_path: Path) -> None:
    run(tmp_path / "a", 3)
    run(tmp_path / "b", 9)
    config = Checkpoint(resume="path", resume_from_path=str(tmp_path / "a" / "step-2"))
    resumed = resume(tmp_path / "b", config, Learner().parts)
    assert resumed is not None
    assert resumed.directory == tmp_path / "a" / "step-2"
    Saver(tmp_path / "b", config).save(3, Learner().parts, DriverState())
    assert list_candidates(tmp_path / "b", config) == [tmp_path / "b" / "step-3", tmp_path / "a" / "step-2"]


def test_a_path_without_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    config = Checkpoint(resume="path", resume_from_path=str(tmp_path / "step-2"))
    with pytest.raises(ValueError, match="step-2 is not a complete checkpoint"):
        resume(tmp_path, config, Learner().parts)


def overwrite(content: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content)


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes(255 - byte for byte in content))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("__0_0.distcp", Path.unlink),
        ("__0_0.distcp", overwrite(b"")),
        ("__0_0.distcp", flip),
        (".metadata", Path.unlink),
        (".metadata", flip),
        (VALUES, flip),
        (TENSORS, flip),
        (COMPLETE, overwrite(b"{")),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    file: str, damage: Callable[[Path], Any], tmp_path: Path
) -> None:
    run(tmp_path, 3)
    expected = Learner()
    assert resume(tmp_path, Checkpoint(resume="path", resume_from_path=str(tmp_path / "step-2")), expected.parts)
    damage(tmp_path / "step-3" / file)
    learner = Learner(seed=1)
    resumed = resume(tmp_path, AUTO, learner.parts)
    assert resumed is not None
    assert resumed.step == 2
    assert len(resumed.warnings) == 1
    assert f"{tmp_path}/step-3 is damaged" in resumed.warnings[0]
    assert f"the run resumes from {tmp_path}/step-2" in resumed.warnings[0]
    assert learner.weights() == expected.weights()


def test_only_the_latest_checkpoint_of_another_version_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, 3)
    later = '{"format": 2}'
    (tmp_path / "step-1" / COMPLETE).write_text(later)
    assert list_candidates(tmp_path, AUTO) == [tmp_path / "step-3", tmp_path / "step-2"]
    (tmp_path / "step-3" / COMPLETE).write_text(later)
    with pytest.raises(ValueError, match="step-3 has checkpoint format 2, but this version"):
        resume(tmp_path, AUTO, Learner().parts)


def test_if_all_checkpoints_are_damaged_the_run_fails(tmp_path: Path) -> None:
    run(tmp_path, 1)
    (tmp_path / "step-1" / ".metadata").unlink()
    with pytest.raises(ValueError, match=r"No usable checkpoint .*metadata is missing.*resume: never"):
        resume(tmp_path, AUTO, Learner().parts)


def test_a_checkpoint_of_another_model_is_rejected(tmp_path: Path) -> None:
    run(tmp_path, 2)
    with pytest.raises(
        ValueError, match=r"step-2 is a checkpoint of another model: 0.weight is \[4, 3\] in the checkpoint and"
    ):
        resume(tmp_path, AUTO, Learner(width=5).parts)
    deeper = Learner()
    deeper.model.append(nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"2.weight is missing, and 1 more"):
        resume(tmp_path, AUTO, deeper.parts)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    run(tmp_path, 1)
    learner = Learner()
    with pytest.raises(ValueError, match="step-1 has no critic: it was saved by a run without one"):
        resume(tmp_path, AUTO, {**learner.parts, "critic": ModelState(learner.model)})


def test_an_unused_part_is_a_warning(tmp_path: Path) -> None:
    run(tmp_path, 1)
    with pytest.warns(UserWarning, match="step-1 contains optimizer, which this run does not use"):
        resume(tmp_path, AUTO, {"model": Learner().parts["model"]})


def test_the_learning_rate_comes_from_the_config(tmp_path: Path) -> None:
    run(tmp_path, 1)
    slower = Learner(learning_rate=0.01)
    resume(tmp_path, AUTO, slower.parts)
    assert [group["lr"] for group in slower.optimizer.param_groups] == [0.01]
    assert len(slower.optimizer.state) == 4


def test_frozen_parameters_are_not_saved(tmp_path: Path) -> None:
    learner = Learner()
    other = Learner(seed=1)
    for each in (learner, other):
        each.model[0].requires_grad_(False)
    frozen = next(iter(other.model[0].parameters())).tolist()
    Saver(tmp_path, AUTO).save(1, {"model": ModelState(learner.model)}, DriverState())
    resume(tmp_path, AUTO, {"model": ModelState(other.model)})
    assert next(iter(other.model[0].parameters())).tolist() == frozen
    assert other.weights()[-5:] == learner.weights()[-5:]


def test_the_reference_is_loaded_from_step_0(tmp_path: Path) -> None:
    learner = Learner()
    saver = Saver(tmp_path, Checkpoint(max_to_keep=1))
    start = learner.weights()
    for step in range(3):
        saver.save(step, learner.parts, DriverState())
        learner.learn(step)
    reference = Learner(seed=1)
    reference.model.requires_grad_(False)
    load_reference(tmp_path / "step-2", reference.model)
    assert reference.weights() == start
    assert not (tmp_path / "step-1").exists()
    (tmp_path / "step-0" / ".metadata").unlink()
    with pytest.raises(ValueError, match="policy after the warm-up"):
        load_reference(tmp_path / "step-2", reference.model)


def test_the_reference_is_found_through_earlier_runs(tmp_path: Path) -> None:
    learner = Learner()
    folder = tmp_path / "first"
    start = learner.weights()
    Saver(folder, AUTO).save(0, learner.parts, DriverState())
    for step, name in ((1, "second"), (2, "third")):
        origin = Checkpoint(resume="path", resume_from_path=str(folder / f"step-{step - 1}"))
        folder = tmp_path / name
        learner.learn(step)
        Saver(folder, origin).save(step, learner.parts, DriverState())
    reference = Learner(seed=1)
    reference.model.requires_grad_(False)
    load_reference(folder / "step-2", reference.model)
    assert reference.weights() == start
    assert f"as in {tmp_path}/first/step-0" in (describe_other_reference(folder / "step-2") or "")
    shutil.rmtree(tmp_path / "second/step-1")
    assert describe_other_reference(folder / "step-2") is None


def test_the_best_checkpoint_is_retained(tmp_path: Path) -> None:
    learner = Learner()
    saver = Saver(tmp_path, Checkpoint(max_to_keep=1, keep_best=True))
    for step, score in ((1, 0.1), (2, 0.9), (3, 0.5), (4, None)):
        saver.save(step, learner.parts, DriverState(), score=score)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-2", "step-4"]
    assert find_latest_step(tmp_path) == 4
