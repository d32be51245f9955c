"""What a process measures of its own pod, really: files, folders, connections."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rlt_trainer.preflight import shared_folder
from rlt_trainer.preflight.connections import Listener, broken_links, listen
from rlt_trainer.preflight.pod_facts import has_chat_template, unreadable, versions
from rlt_trainer.workers.rendezvous import interface_of

LOOPBACK = "127.0.0.1"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    assert unreadable([str(model), str(tmp_path / "no.parquet")]) == {
        str(model): "the folder is empty",
        str(tmp_path / "no.parquet"): "No such file or directory",
    }
    (model / "config.json").write_text("{}")
    assert unreadable([str(model)]) == {}
    (model / "model.safetensors").symlink_to(tmp_path / "gone")
    (model / "loop").symlink_to(model / "loop")
    assert unreadable([str(model)]) == {}, "links that lead nowhere are no files"


@pytest.mark.parametrize(
    ("files", "there"),
    [
        ({}, False),
        ({"tokenizer_config.json": json.dumps({"eos_token": "<|end|>"})}, False),
        ({"tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"})}, True),
        ({"chat_template.jinja": "{{ messages }}"}, True),
    ],
)
def test_a_chat_template_lies_with_the_tokenizer(tmp_path: Path, files: dict[str, str], there: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert has_chat_template(str(tmp_path)) is there


def test_versions_are_those_that_run_here() -> None:
    import torch

    assert versions()["torch"] == torch.__version__.partition("+")[0]


def test_the_interface_of_an_address() -> None:
    assert interface_of(LOOPBACK) == "lo"
    assert interface_of("192.0.2.1") is None


def test_pods_see_each_others_files(tmp_path: Path) -> None:
    folder = shared_folder.scratch(str(tmp_path / "run"), "x")
    assert [shared_folder.write(folder, pod) for pod in "ab"] == [None, None]
    seen = shared_folder.look(folder, "a", None, ["a", "b"])
    assert (seen.unseen, seen.free > 0) == ((), True)
    shared_folder.remove(folder)
    assert list((tmp_path / "run").iterdir()) == []


def test_files_that_others_do_not_see_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "SEEN_S", 0.2)
    folder = shared_folder.scratch(str(tmp_path), "x")
    assert shared_folder.write(folder, "a") is None
    assert shared_folder.look(folder, "a", None, ["a", "b"]).unseen == ("b",)


def test_a_folder_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    assert shared_folder.write(shared_folder.scratch(str(tmp_path / "run"), "x"), "a") == "Not a directory"


def test_a_peer_that_nobody_hears_is_a_broken_link() -> None:
    with listen(LOOPBACK) as open_, socket.create_server((LOOPBACK, 0)) as closed:
        gone = closed.getsockname()[1]
        closed.close()
        peers = [Listener("b", LOOPBACK, open_.getsockname()[1]), Listener("c", LOOPBACK, gone)]
        (link,) = broken_links("a", peers, timeout_s=2)
    assert (link.pod, link.peer, link.error) == ("a", "c", "127.0.0.1: Connection refused")
