"""Checkpoints and results in a bucket: the marker is last, and only what it names is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from folder_objects import FolderObjects

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.bucket.check import check_bucket
from rlt_trainer.bucket.command import measure_skew
from rlt_trainer.bucket.folders import download_files, upload_folder, upload_numbered
from rlt_trainer.bucket.objects import BucketError
from rlt_trainer.checkpoint import bucket_marks, marker
from rlt_trainer.checkpoint.marker import DamagedCheckpointError
from rlt_trainer.telemetry.lease import LeaseLostError
from rlt_trainer.telemetry.published_results import PublishedResults
from rlt_trainer.telemetry.run_directory import RunDirectory

FOLDER = "a1b2c3d4/"


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    (tmp_path / "bucket").mkdir()
    return FolderObjects(tmp_path / "bucket")


def save(
    objects: FolderObjects,
    checkpoints: Path,
    step: int,
    *,
    content: str = "weights",
    folder: str = FOLDER,
    check_lease: Callable[[], None] = lambda: None,
) -> None:
    """Upload and commit a checkpoint of one file."""
    staged = checkpoints.with_name("staged")
    staged.mkdir(exist_ok=True)
    (staged / "__0_0.distcp").write_text(content)
    files = upload_folder(objects, staged, bucket_marks.prefix_of(step) + folder)
    bucket_marks.commit(objects, checkpoints, step, folder, files, check_lease)


def test_a_committed_checkpoint_is_downloaded_as_it_was(objects: FolderObjects, tmp_path: Path) -> None:
    save(objects, tmp_path / "first", 5)
    save(objects, tmp_path / "first", 6, content="other weights")
    assert objects.written[-2:] == ["checkpoints/step-6/a1b2c3d4/__0_0.distcp", "checkpoints/step-6/complete"]

    other_node = tmp_path / "second/checkpoints"
    bucket_marks.copy_marks(objects, other_node)
    assert [mark.step for mark in marker.read_marks(other_node).values()] == [6, 5]
    for rank in (0, 1):  # on the same node
        bucket_marks.download(objects, other_node / "step-6", rank=rank)
    marker.verify(other_node / "step-6", marker.read_mark(other_node / "step-6"))
    assert (other_node / "step-6/a1b2c3d4/__0_0.distcp").read_text() == "other weights"
    bucket_marks.remove_downloads(other_node)
    assert [path.name for path in (other_node / "step-6").iterdir()] == ["complete"]


def test_a_step_without_a_marker_does_not_exist(objects: FolderObjects, tmp_path: Path) -> None:
    save(objects, tmp_path / "first", 5)
    before = objects.list("")
    upload_folder(objects, tmp_path / "staged", bucket_marks.prefix_of(6) + FOLDER)
    upload_folder(objects, tmp_path / "staged", bucket_marks.prefix_of(5) + bucket_marks.new_folder())
    bucket_marks.copy_marks(objects, tmp_path / "second")
    assert list(marker.read_marks(tmp_path / "second")) == [tmp_path / "second/step-5"]
    assert objects.list("") == before, "objects that no marker names use no space"


def test_the_files_of_a_marker_that_cannot_be_read_are_kept(objects: FolderObjects, tmp_path: Path) -> None:
    save(objects, tmp_path / "first", 5)
    (objects.folder / "checkpoints/step-5/complete").write_text("{")
    before = objects.list("")
    bucket_marks.copy_marks(objects, tmp_path / "second")
    assert objects.list("") == before


def test_an_object_of_another_size_makes_a_checkpoint_damaged(objects: FolderObjects, tmp_path: Path) -> None:
    save(objects, tmp_path / "first", 5)
    (objects.folder / "checkpoints/step-5/a1b2c3d4/__0_0.distcp").write_text("weig")
    directory = tmp_path / "second/step-5"
    bucket_marks.download(objects, directory, rank=0)
    with pytest.raises(DamagedCheckpointError, match=r"__0_0\.distcp is missing"):
        marker.verify(directory, marker.read_mark(directory))


@pytest.mark.parametrize("is_saved_before", [False, True])
def test_a_marker_that_another_execution_has_put_a_moment_ago_ends_this_one(
    objects: FolderObjects, tmp_path: Path, is_saved_before: bool
) -> None:
    """The other one starts after this one has looked for it."""
    if is_saved_before:
        save(objects, tmp_path / "other", 5)
    other = partial(save, objects, tmp_path / "other", 5, content="other weights", folder="e5f6a7b8/")
    with pytest.raises(LeaseLostError, match="Another execution of this run has saved step 5"):
        save(objects, tmp_path / "this", 5, folder="c9d0e1f2/", check_lease=other)
    assert b"e5f6a7b8/" in (objects.read("checkpoints/step-5/complete") or b"")
    assert objects.read("checkpoints/step-5/e5f6a7b8/__0_0.distcp") == b"other weights"


def test_a_step_that_is_saved_again_keeps_its_checkpoint_until_the_new_one_is_complete(
    objects: FolderObjects, tmp_path: Path
) -> None:
    save(objects, tmp_path / "first", 5)
    before = objects.list("")

    def check_lease() -> None:
        assert before.items() <= objects.list("").items()

    save(objects, tmp_path / "first", 5, content="new weights", folder="e5f6a7b8/", check_lease=check_lease)
    assert objects.list("").keys() == {"checkpoints/step-5/complete", "checkpoints/step-5/e5f6a7b8/__0_0.distcp"}


def test_a_file_that_another_program_has_replaced_is_not_committed(objects: FolderObjects, tmp_path: Path) -> None:
    with pytest.raises(BucketError, match=r"step-5/a1b2c3d4/__0_0\.distcp has None bytes instead of 7"):
        bucket_marks.commit(objects, tmp_path / "first", 5, FOLDER, {"__0_0.distcp": 7}, lambda: None)
    assert objects.read("checkpoints/step-5/complete") is None


def test_the_marker_is_deleted_before_the_files(objects: FolderObjects, tmp_path: Path) -> None:
    for step in (0, 1, 2, 3):
        save(objects, tmp_path / "first", step)
    bucket_marks.remove_superseded(objects, tmp_path / "first", Checkpoint(max_to_keep=1), lambda: None)
    assert {key.split("/")[1] for key in objects.list("checkpoints/")} == {"step-0", "step-3"}
    assert objects.deleted[0] == ["checkpoints/step-2/complete"]
    assert [mark.step for mark in marker.read_marks(tmp_path / "first").values()] == [3, 0]


def test_a_program_without_the_lease_deletes_no_superseded_checkpoint(objects: FolderObjects, tmp_path: Path) -> None:
    for step in (1, 2):
        save(objects, tmp_path / "first", step)

    def check_lease() -> None:
        raise LeaseLostError("lost")

    bucket_marks.remove_superseded(objects, tmp_path / "first", Checkpoint(max_to_keep=1), check_lease)
    assert not objects.deleted


def test_files_are_downloaded_once_by_the_processes_of_a_node(objects: FolderObjects, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "more").mkdir(parents=True)
    for name in ("a", "b", "more/c"):
        (source / name).write_text(name)
    sizes = upload_folder(objects, source, "x/")
    assert sizes == {"a": 1, "b": 1, "more/c": 6}
    target = tmp_path / "target"
    download_files(objects, "x/", sizes, target, first=2)
    (target / "a").write_text("A")  # as if another process had it
    download_files(objects, "x/", sizes, target, first=1)
    assert [(target / name).read_text() for name in sizes] == ["A", "b", "more/c"]


def test_a_model_without_its_config_is_never_visible(objects: FolderObjects, tmp_path: Path) -> None:
    """The last program deletes the models of earlier ones, and none of a later one."""
    files = ["config.json", "model.safetensors", "tokenizer.json"]
    for number in (9, 11, 10):
        model = tmp_path / f"export/{number}"
        model.mkdir(parents=True)
        for name in files:
            (model / name).write_text("1")
        upload_numbered(objects, model)
        assert objects.written[-1] == f"export/{number}/config.json"
    assert objects.deleted[2:] == [["export/9/config.json"], [f"export/9/{name}" for name in files], [], []]
    assert objects.list("export/").keys() == {f"export/{number}/{name}" for number in (10, 11) for name in files}


def test_results_that_a_run_removes_are_deleted_at_its_end(objects: FolderObjects, tmp_path: Path) -> None:
    """A late delete of an earlier program would else remove the file that a later one writes again."""
    run = RunDirectory(tmp_path / "run")
    results = PublishedResults(objects, tmp_path / "run")
    file = tmp_path / "run/evaluation/digits/step-1.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("samples")
    results.upload()
    file.unlink()
    run.append_metrics(1, {"reward": 1.0})
    results.upload()
    assert objects.read("evaluation/digits/step-1.parquet") == b"samples"
    assert not objects.deleted
    with results.complete():
        pass
    assert objects.deleted == [["evaluation/digits/step-1.parquet"]]


def test_results_are_complete_and_a_resumed_run_continues_them(objects: FolderObjects, tmp_path: Path) -> None:
    first = PublishedResults(objects, tmp_path / "first")
    run = RunDirectory(tmp_path / "first")
    run.append_metrics(1, {"reward": 1.0})
    run.write_rollouts(1, [{"text": "a"}])
    first.upload()
    count = len(objects.written)
    first.upload()
    assert len(objects.written) == count, "nothing has changed"

    second = PublishedResults(objects, tmp_path / "second")
    second.restore()
    run = RunDirectory(tmp_path / "second")
    with second.complete():
        run.append_metrics(2, {"reward": 2.0})
    assert objects.read("metrics.jsonl") == b'{"step": 1, "reward": 1.0}\n{"step": 2, "reward": 2.0}\n'
    assert objects.list("").keys() == {"metrics.jsonl", "spans.jsonl", "rollouts/step-1.jsonl"}


def test_an_error_of_the_run_is_not_replaced_by_one_of_the_upload(objects: FolderObjects, tmp_path: Path) -> None:
    results = PublishedResults(objects, tmp_path / "run")
    RunDirectory(tmp_path / "run")
    objects.folder.rmdir()
    objects.folder.write_text("no folder")
    with pytest.raises(ValueError, match="the run's"), results.complete():
        raise ValueError("the run's")


def test_the_skew_of_the_clock_is_read_from_an_answer_of_any_status() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(time.time() - 400, usegmt=True)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        skew = measure_skew(f"http://127.0.0.1:{server.server_port}")
        thread.join()
    assert skew == pytest.approx(400, abs=30)
    assert measure_skew(f"http://127.0.0.1:{server.server_port}") is None, "it has ended"


def test_a_server_that_ignores_conditions_is_rejected(objects: FolderObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    check_bucket(objects)
    assert objects.list("") == {}

    def overwrite(key: str, content: bytes) -> bool:
        (objects.folder / key).write_bytes(content)
        return True

    def overwrite_version(key: str, content: bytes, version: str | None) -> str:
        overwrite(key, content)
        return "new"

    for name, replaced in (("put_if_absent", overwrite), ("put_if_same", overwrite_version)):
        with monkeypatch.context() as patch:
            patch.setattr(objects, name, replaced)
            with pytest.raises(BucketError, match="ignores the condition of a put"):
                check_bucket(objects)
        assert objects.list("") == {}
