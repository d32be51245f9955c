"""Measurements of a process in its pod, on real files, folders and connections."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rlt_trainer.cluster.rendezvous import interface_of
from rlt_trainer.preflight import shared_folder
from rlt_trainer.preflight.connections import Listener, find_broken_links, listen
from rlt_trainer.preflight.pod_facts import find_unreadable, has_chat_template, read_versions

LOOPBACK = "127.0.0.1"


def test_unreadable_paths_are_returned_with_the_reason(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    assert find_unreadable([str(model), str(tmp_path / "no.parquet")]) == {
        str(model): "the folder is empty",
        str(tmp_path / "no.parquet"): "No such file or directory",
    }
    (model / "config.json").write_text("{}")
    assert find_unreadable([str(model)]) == {}
    (model / "model.safetensors").symlink_to(tmp_path / "gone")
    (model / "loop").symlink_to(model / "loop")
    assert find_unreadable([str(model)]) == {}, "broken links are not files"


@pytest.mark.parametrize(
    ("files", "exists"),
    [
        ({}, False),
        ({"tokenizer_config.json": json.dumps({"eos_token": "<|end|>"})}, False),
        ({"tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"})}, True),
        ({"chat_template.jinja": "{{ messages }}"}, True),
    ],
)
def test_a_chat_template_is_found_with_the_tokenizer(tmp_path: Path, files: dict[str, str], exists: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert has_chat_template(str(tmp_path)) is exists


def test_versions_are_those_of_the_installed_distributions() -> None:
    import torch

    assert read_versions()["torch"] == torch.__version__.partition("+")[0]


def test_an_address_belongs_to_its_interface() -> None:
    assert interface_of(LOOPBACK) == "lo"
    assert interface_of("192.0.2.1") is None


def test_pods_see_each_others_files(tmp_path: Path) -> None:
    folder = shared_folder.get_scratch_folder(str(tmp_path / "run"), "x")
    assert [shared_folder.write_file(folder, pod) for pod in "ab"] == [None, None]
    found = shared_folder.find_files(folder, "a", None, ["a", "b"])
    assert (found.unseen, found.free > 0) == ((), True)
    shared_folder.remove_folder(folder)
    assert list((tmp_path / "run").iterdir()) == []


def test_files_that_are_not_visible_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "VISIBILITY_TIMEOUT_S", 0.2)
    folder = shared_folder.get_scratch_folder(str(tmp_path), "x")
    assert shared_folder.write_file(folder, "a") is None
    assert shared_folder.find_files(folder, "a", None, ["a", "b"]).unseen == ("b",)


def test_a_folder_that_cannot_be_written_returns_the_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    folder = shared_folder.get_scratch_folder(str(tmp_path / "run"), "x")
    assert shared_folder.write_file(folder, "a") == "Not a directory"


def test_a_peer_that_does_not_listen_is_a_broken_link() -> None:
    with listen(LOOPBACK) as open_, socket.create_server((LOOPBACK, 0)) as closed:
        closed_port = closed.getsockname()[1]
        closed.close()
        peers = [Listener("b", LOOPBACK, open_.getsockname()[1]), Listener("c", LOOPBACK, closed_port)]
        (link,) = find_broken_links("a", peers, timeout_s=2)
    assert (link.pod, link.peer, link.error) == ("a", "c", "127.0.0.1: Connection refused")
