"""The publication in a bucket: the marker is last, a prefix has one run, and no object is uploaded twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from folder_objects import FolderObjects

from rlt_trainer.bucket.objects import BucketError
from rlt_trainer.publishing.bucket import MARK, PLAN, BucketPrefix
from rlt_trainer.publishing.place import PublishError

FILES = {"config.json": "{}", "model.safetensors": "weights", "adapter/adapter_config.json": "{}", "README.md": "# A"}


class BrokenObjects(FolderObjects):
    """Objects whose server fails from the n-th change on."""

    def __init__(self, folder: Path, changes: int) -> None:
        super().__init__(folder)
        self.left = changes

    def put(self, key: str, file: Path) -> None:
        self._count()
        super().put(key, file)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        self._count()
        return super().put_if_absent(key, content)

    def delete(self, keys: Collection[str]) -> None:
        self._count()
        super().delete(keys)

    def _count(self) -> None:
        if self.left == 0:
            raise BucketError("the server does not answer.", "Correct spec.storage.endpoint.")
        self.left -= 1


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket"
    folder.mkdir()
    return folder


def write(folder: Path, **changes: str) -> Path:
    for name, content in {**FILES, **changes}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def place(objects: FolderObjects, run: str = "demo/sum-1a2b3c4d") -> BucketPrefix:
    return BucketPrefix(objects, run, "spec.publish[1].bucket")


def read(bucket: Path) -> dict[str, str]:
    files = {str(file.relative_to(bucket)): file.read_text() for file in bucket.rglob("*") if file.is_file()}
    return {name: text for name, text in files.items() if name not in (PLAN, MARK)}


def test_the_plan_is_first_config_json_after_the_weights_and_the_marker_last(bucket: Path, tmp_path: Path) -> None:
    objects = FolderObjects(bucket)
    revision = place(objects).publish(write(tmp_path / "export"))
    assert objects.written == [
        PLAN,
        *("README.md", "adapter/adapter_config.json", "model.safetensors"),
        *("config.json", MARK),
    ]
    assert read(bucket) == FILES
    mark = json.loads((bucket / MARK).read_text())
    assert (mark["revision"], mark["run"], mark["sizes"]["model.safetensors"]) == (revision, "demo/sum-1a2b3c4d", 7)


def test_the_same_files_are_not_published_twice(bucket: Path, tmp_path: Path) -> None:
    export = write(tmp_path / "export")
    revision = place(FolderObjects(bucket)).publish(export)
    objects = FolderObjects(bucket)
    assert place(objects).publish(export) == revision
    assert (objects.written, objects.deleted) == ([], [])


def test_other_files_replace_those_of_the_run(bucket: Path, tmp_path: Path) -> None:
    export = write(tmp_path / "export")
    first = place(FolderObjects(bucket)).publish(export)
    (bucket / "notes.txt").write_text("by a user")
    shutil.rmtree(export / "adapter")
    write(tmp_path / "export", **{"model.safetensors": "WEIGHTS"})
    shutil.rmtree(export / "adapter")
    objects = FolderObjects(bucket)
    assert place(objects).publish(export) != first
    assert objects.deleted[0] == [MARK], "the earlier model is incomplete from now on"
    assert read(bucket) == {
        **{name: FILES[name] for name in ("config.json", "README.md")},
        "model.safetensors": "WEIGHTS",
        "notes.txt": "by a user",
    }


@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_publication_continues_from_any_point(bucket: Path, tmp_path: Path, *, has_earlier: bool) -> None:
    export = write(tmp_path / "export", **{"model.safetensors": "earlier"})
    start = tmp_path / "start"
    start.mkdir()
    if has_earlier:
        place(FolderObjects(start)).publish(export)
        (start / "notes.txt").write_text("by a user")
    others = {"notes.txt": "by a user"} if has_earlier else {}
    write(export, **{"model.safetensors": "WEIGHTS"})
    for changes in range(8 if has_earlier else 6):
        shutil.rmtree(bucket)
        shutil.copytree(start, bucket)
        message = r"spec.publish\[1\].bucket: s3://.*: the server does not answer; correct spec.publish\[1\].endpoint\."
        with pytest.raises(PublishError, match=message):
            place(BrokenObjects(bucket, changes)).publish(export)
        if (bucket / MARK).exists():
            assert read(bucket)["model.safetensors"] == "earlier", "the marker is about all files"
        objects = FolderObjects(bucket)
        place(objects).publish(export)
        assert read(bucket) == {**FILES, "model.safetensors": "WEIGHTS", **others}
        assert (bucket / MARK).exists()
        assert not has_earlier or changes < 4 or "README.md" not in objects.written, "it is uploaded once"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({PLAN: json.dumps({"run": "demo/other", "revision": "a", "sizes": {}})}, "belongs to the run demo/other"),
        ({"data.parquet": "1"}, "has objects of another origin, such as data.parquet"),
        ({PLAN: "{}"}, f"its {PLAN} is damaged"),
    ],
    ids=["another-run", "other-objects", "damaged"],
)
def test_a_prefix_of_others_is_left_alone(bucket: Path, tmp_path: Path, content: dict[str, str], problem: str) -> None:
    for name, text in content.items():
        (bucket / name).write_text(text)
    objects = FolderObjects(bucket)
    for act in (place(objects).check, lambda: place(objects).publish(write(tmp_path / "export"))):
        with pytest.raises(PublishError) as caught:
            act()
        fix = "use another prefix, or delete the objects below it."
        assert str(caught.value) == f"spec.publish[1].bucket: {objects.url}: {problem}; {fix}"
    assert (objects.written, objects.deleted) == ([], [])


def test_of_two_runs_one_gets_an_empty_prefix(bucket: Path, tmp_path: Path) -> None:
    class Raced(FolderObjects):
        def list(self, folder: str) -> dict[str, int]:
            found = super().list(folder)
            place(FolderObjects(self.folder), "demo/other").publish(export)
            return found

        def read(self, key: str) -> bytes | None:
            return None  # before the other one has written it

    export = write(tmp_path / "export")
    with pytest.raises(PublishError, match="another run has taken it a moment ago"):
        place(Raced(bucket)).publish(export)
    assert json.loads((bucket / MARK).read_text())["run"] == "demo/other"


def test_a_check_leaves_nothing(bucket: Path) -> None:
    place(FolderObjects(bucket)).check()
    assert list(bucket.iterdir()) == []
