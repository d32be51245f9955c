"""Only a checkpoint that was written to its end counts."""

from __future__ import annotations

from pathlib import Path

from rlt_trainer.checkpoint.marker import COMPLETE, LATEST, checkpoint_directory, commit, latest_complete, prepare


def save(checkpoints: Path, step: int, content: str = "weights") -> None:
    (prepare(checkpoints, step) / "shard").write_text(content)
    commit(checkpoints, step)


def test_there_is_none_in_a_new_folder(tmp_path: Path) -> None:
    assert latest_complete(tmp_path / "checkpoints") is None


def test_the_latest_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    for step in (2, 10, 9):
        save(tmp_path, step)
    assert latest_complete(tmp_path) == 10


def test_a_checkpoint_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (prepare(tmp_path, 2) / "shard").write_text("half")
    assert latest_complete(tmp_path) == 1


def test_one_that_was_renamed_and_not_marked_does_not_count(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (checkpoint_directory(tmp_path, 2) / COMPLETE).unlink()
    assert latest_complete(tmp_path) == 1


def test_what_was_left_of_an_earlier_attempt_is_gone(tmp_path: Path) -> None:
    (prepare(tmp_path, 1) / "stale").write_text("stale")
    save(tmp_path, 1)
    assert sorted(path.name for path in checkpoint_directory(tmp_path, 1).iterdir()) == [COMPLETE, "shard"]


def test_a_repeated_step_replaces_its_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1, "old")
    save(tmp_path, 1, "new")
    assert (checkpoint_directory(tmp_path, 1) / "shard").read_text() == "new"
    assert (tmp_path / LATEST).read_text() == "step-1\n"
