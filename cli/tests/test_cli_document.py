"""The transcripts in docs/cli.md and in the pages of the places are the output of the commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"cli": 8, "slurm": 1, "ray": 1, "docker": 1, "dstack": 1}
"""Page -> minimum number of its commands."""
PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -c "from rlt_cli.main import main; main()" "$@"\n'


def transcript(page: str) -> list[tuple[str, str]]:
    """The commands of a page and their output, in order."""
    consoles = re.findall(r"^```console\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.S | re.M)
    return [
        (command, shown) for text in consoles for command, shown in re.findall(r"\$ (.*)\n((?:(?!\$ ).*\n)*)", text)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_transcripts_match_the_output(page: str, tmp_path: Path) -> None:
    (tmp_path / "rlt").write_text(PROGRAM)
    (tmp_path / "rlt").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    commands = transcript(page)
    assert len(commands) >= PAGES[page]
    for command, shown in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert f"$ {command}\n{done.stdout}" == f"$ {command}\n{shown}"
