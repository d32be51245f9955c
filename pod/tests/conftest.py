"""run-command with the files that a pod has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import observed as o
import pytest
from command_wrapper import Start
from mounted_files import write_files

from rlt_api.spec.training_config import PROGRAMS_FILE


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pods of a command mount."""
    return write_files(o.job(o.COMMAND_SPEC), tmp_path_factory.mktemp("volume"))


@pytest.fixture
def start(mounted: Path, tmp_path: Path) -> Iterator[Start]:
    """Start run-command with options and a Python script as its command."""
    started: list[subprocess.Popen[bytes]] = []

    def run(script: str, *options: str, python: str = sys.executable) -> subprocess.Popen[bytes]:
        command = [python, str(mounted / PROGRAMS_FILE), "run-command", *options, "--", sys.executable, "-uc", script]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()
