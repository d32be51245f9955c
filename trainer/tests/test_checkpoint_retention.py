"""Old checkpoints go; the newest, the best, the pinned and those that are read stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt_trainer.checkpoint.marker import Mark, commit, prepare
from rlt_trainer.checkpoint.retention import reading, remove_superseded, superseded

SCORES = {1: 0.5, 2: 0.9, 3: 0.9, 4: None, 5: 0.1}


@pytest.mark.parametrize(
    ("max_to_keep", "keep_best", "pinned", "gone"),
    [
        (None, True, [], []),
        (5, False, [], []),
        (2, False, [], [3, 2, 1]),
        (2, True, [], [2, 1]),
        (1, True, [1], [4, 2]),
        (1, False, [9], [4, 3, 2, 1]),
    ],
)
def test_which_go(max_to_keep: int | None, keep_best: bool, pinned: list[int], gone: list[int]) -> None:
    marks = {Path(f"step-{step}"): Mark(step, number=step, files={}, score=SCORES[step]) for step in (5, 4, 3, 2, 1)}
    found = superseded(
        marks, max_to_keep=max_to_keep, keep_best=keep_best, pinned=[Path(f"step-{step}") for step in pinned]
    )
    assert found == [Path(f"step-{step}") for step in gone]


def test_one_that_is_read_is_deleted_later(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        prepare(tmp_path, step)
        commit(tmp_path, step)
    with reading(tmp_path / "step-1"):
        remove_superseded(tmp_path, max_to_keep=1, keep_best=False)
        assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-1", "step-3"]
    remove_superseded(tmp_path, max_to_keep=1, keep_best=False)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-3"]
