"""The transcripts in docs/cli.md are the output of the commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = (Path(__file__).parents[2] / "docs/cli.md").read_text()
PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -c "from rlt_cli.main import main; main()" "$@"\n'


def transcript() -> list[tuple[str, str]]:
    """The commands and their output, in order."""
    consoles = re.findall(r"^```console\n(.*?)^```", DOCUMENT, re.S | re.M)
    return [
        (command, shown) for text in consoles for command, shown in re.findall(r"\$ (.*)\n((?:(?!\$ ).*\n)*)", text)
    ]


def test_transcripts_match_the_output(tmp_path: Path) -> None:
    (tmp_path / "rlt").write_text(PROGRAM)
    (tmp_path / "rlt").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    commands = transcript()
    assert len(commands) >= 8
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
