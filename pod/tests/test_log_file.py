"""The file with the output of a program: its bound, and a storage that hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlt_pod.command import log_file
from rlt_pod.command.log_file import LogFile


def test_a_full_file_becomes_the_previous_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "MAX_FILE_BYTES", 100)
    for letter in "abcdef":
        log = LogFile(str(tmp_path / "program.log"))
        log.write(letter.encode() * 60)
        log.close()
    assert (tmp_path / "program.log.1").read_text() == "e" * 60 + "f" * 60
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.log.1"]


def test_a_storage_that_hangs_does_not_stop_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named pipe without a reader blocks the thread that opens it. What exceeds the bound is left out."""
    monkeypatch.setattr(log_file, "MAX_WAITING_BYTES", 100)
    monkeypatch.setattr(log_file, "CLOSE_TIMEOUT_S", 0.1)
    pipe = tmp_path / "program.log"
    os.mkfifo(pipe)
    log = LogFile(str(pipe))
    for _ in range(50):
        log.write(b"x" * 10)
    log.close()
    reader = os.open(pipe, os.O_RDONLY)  # the storage answers again
    received = b""
    while chunk := os.read(reader, 1000):
        received += chunk
    os.close(reader)
    assert received.count(b"x") in range(10, 101, 10)


def test_the_number_of_left_out_bytes_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "MAX_WAITING_BYTES", 10)
    log = LogFile(str(tmp_path / "program.log"))
    log.write(b"more than ten bytes")
    log.write(b"short\n")
    log.close()
    assert (tmp_path / "program.log").read_text() == "\n[19 bytes are left out]\nshort\n"
