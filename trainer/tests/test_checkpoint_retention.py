"""Old checkpoints are deleted, except the latest, the best, the pinned, and those being read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt_trainer.checkpoint.marker import Mark, commit, prepare
from rlt_trainer.checkpoint.retention import find_superseded, lock_for_reading, remove_superseded

SCORES = {1: 0.5, 2: 0.9, 3: 0.9, 4: None, 5: 0.1}


@pytest.mark.parametrize(
    ("max_to_keep", "keep_best", "pinned", "deleted"),
    [
        (0, True, [], []),
        (5, False, [], []),
        (2, False, [], [3, 2, 1]),
        (2, True, [], [2, 1]),
        (1, True, [1], [4, 2]),
        (1, False, [9], [4, 3, 2, 1]),
    ],
)
def test_superseded_checkpoints(max_to_keep: int, keep_best: bool, pinned: list[int], deleted: list[int]) -> None:
    marks = {Path(f"step-{step}"): Mark(step, number=step, files={}, score=SCORES[step]) for step in (5, 4, 3, 2, 1)}
    found = find_superseded(
        marks, max_to_keep=max_to_keep, keep_best=keep_best, pinned=[Path(f"step-{step}") for step in pinned]
    )
    assert found == [Path(f"step-{step}") for step in deleted]


def test_a_checkpoint_being_read_is_deleted_later(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        prepare(tmp_path, step)
        commit(tmp_path, step)
    with lock_for_reading(tmp_path / "step-1"):
        remove_superseded(tmp_path, max_to_keep=1, keep_best=False)
        assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-1", "step-3"]
    remove_superseded(tmp_path, max_to_keep=1, keep_best=False)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-3"]
