"""The archive of `rlt bundle`: its files, and what is masked. operator/tests/apiserver collects a job."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rlt_cli.bundle import Bundle


def test_secrets_are_masked_in_objects_and_texts() -> None:
    """A program may print a secret without the name by which the spec shows that it is one."""
    bundle = Bundle(secrets=frozenset({"correct-horse"}))
    env = [{"name": "HF_TOKEN", "value": "anything"}, {"name": "LEVEL", "value": "info"}]
    bundle.add_object("pod.yaml", {"metadata": {"name": "a", "managedFields": [1]}, "spec": {"env": env}})
    bundle.add_text("a.log", "login with correct-horse\nHF_TOKEN=hf_abcdefghijklmnopqrst\nstep:1")
    assert "anything" not in bundle.files["pod.yaml"]
    assert "managedFields" not in bundle.files["pod.yaml"]
    assert "value: info" in bundle.files["pod.yaml"]
    assert bundle.files["a.log"] == "login with ***\nHF_TOKEN=***\nstep:1"


def test_the_archive_lists_what_could_not_be_read(tmp_path: Path) -> None:
    bundle = Bundle({"logs/a.log": "café"}, ["events: pods is forbidden"])
    bundle.write(tmp_path / "b.tar.gz", "sum-bundle", datetime(2026, 1, 2, tzinfo=UTC))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in files.items() if file}
        assert {each.mode for each in archive.getmembers()} == {0o600}
    assert texts == {"sum-bundle/logs/a.log": "café", "sum-bundle/errors.txt": "events: pods is forbidden\n"}


def test_an_unwritable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Bundle().write(tmp_path / "missing" / "b.tar.gz", "sum-bundle", datetime.now(UTC))
