"""Only complete checkpoints are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlt_trainer.checkpoint.marker import (
    COMPLETE,
    LATEST,
    DamagedCheckpointError,
    checkpoint_directory,
    commit,
    find_latest_step,
    prepare,
    read_mark,
    read_marks,
    remove_partial,
    verify,
)


def save(checkpoints: Path, step: int, content: str = "weights") -> Path:
    (prepare(checkpoints, step) / "shard").write_text(content)
    commit(checkpoints, step)
    return checkpoint_directory(checkpoints, step)


def test_a_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert find_latest_step(tmp_path / "checkpoints") is None


def test_the_latest_checkpoint_is_the_one_written_last(tmp_path: Path) -> None:
    for step in (2, 10, 9):  # 9: the run had resumed from an earlier checkpoint
        save(tmp_path, step)
    assert [mark.step for mark in read_marks(tmp_path).values()] == [9, 10, 2]
    assert find_latest_step(tmp_path) == 9
    assert (tmp_path / LATEST).read_text() == "step-9\n"


def test_an_unfinished_checkpoint_is_ignored(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (prepare(tmp_path, 2) / "shard").write_text("half")
    assert find_latest_step(tmp_path) == 1


def test_a_checkpoint_without_marker_is_ignored(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / COMPLETE).unlink()
    assert find_latest_step(tmp_path) == 1


def test_files_of_an_interrupted_save_are_removed(tmp_path: Path) -> None:
    (prepare(tmp_path, 1) / "stale").write_text("stale")
    assert sorted(path.name for path in save(tmp_path, 1).iterdir()) == [COMPLETE, "shard"]
    prepare(tmp_path, 2)
    remove_partial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LATEST, "step-1"]


def test_a_repeated_step_replaces_its_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1, "old")
    assert (save(tmp_path, 1, "new") / "shard").read_text() == "new"


@pytest.mark.parametrize(("where", "call"), [(Path, "write_text"), (Path, "rename"), (os, "fsync")])
def test_an_interrupted_commit_keeps_the_earlier_checkpoint_latest(
    where: object, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    (prepare(tmp_path, 2) / "shard").write_text("weights")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(where, call, fail)
    with pytest.raises(OSError, match="No space"):
        commit(tmp_path, 2)
    monkeypatch.undo()
    assert find_latest_step(tmp_path) == 1
    assert (tmp_path / LATEST).read_text() == "step-1\n"


def test_a_missing_or_truncated_file_is_damage(tmp_path: Path) -> None:
    directory = save(tmp_path, 1)
    mark = read_mark(directory)
    verify(directory, mark)
    (directory / "shard").write_text("we")
    with pytest.raises(DamagedCheckpointError, match="shard has 2 bytes instead of 7"):
        verify(directory, mark)
    (directory / "shard").unlink()
    with pytest.raises(DamagedCheckpointError, match="shard is missing"):
        verify(directory, mark)


@pytest.mark.parametrize("content", ["", "{", "1\n", '{"format": 1, "step": 1}', '{"format": 1, "who": "knows"}'])
def test_an_invalid_marker_is_damage(content: str, tmp_path: Path) -> None:
    (save(tmp_path, 1) / COMPLETE).write_text(content)
    assert find_latest_step(tmp_path) is None
    with pytest.raises(DamagedCheckpointError, match=COMPLETE):
        read_mark(tmp_path / "step-1")


def test_a_checkpoint_of_another_version_is_rejected(tmp_path: Path) -> None:
    (save(tmp_path, 1) / COMPLETE).write_text('{"format": 2}')
    with pytest.raises(ValueError, match=r"step-1 has checkpoint format 2.*resume: never"):
        read_mark(tmp_path / "step-1")
