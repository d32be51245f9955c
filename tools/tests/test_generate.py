"""Generated folders hold generated pages alone."""

from __future__ import annotations

from pathlib import Path

from generate import remove_pages


def test_page_of_a_former_topic_is_removed(tmp_path: Path) -> None:
    kept = tmp_path / "ray.md"
    former = tmp_path / "slurm.md"
    kept.touch()
    former.touch()
    assert remove_pages(tmp_path, {kept}, check=True) == [former]
    assert former.exists()
    assert remove_pages(tmp_path, {kept}, check=False) == [former]
    assert list(tmp_path.iterdir()) == [kept]
