"""A job is followed in a real notebook: a kernel runs the cell, and its client applies the updates."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from separate_environment import install

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(sys.stdin.read())])
NotebookClient(notebook, timeout=600).execute()
print(nbformat.writes(notebook))
"""
CELL = f"""
import sys
sys.path.insert(0, {str(ROOT / "client/tests")!r})
from test_live_view import STEPS, follow
print(follow(STEPS[:2], STEPS))
"""


def test_a_notebook_replaces_its_output_in_place() -> None:
    python = install("notebook", on_top=True)
    packages = os.pathsep.join(str(ROOT / name) for name in ("client", "core", "crds"))
    environment = {**os.environ, "PYTHONPATH": packages}
    done = subprocess.run([python, "-c", EXECUTE], input=CELL, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown, printed = json.loads(done.stdout)["cells"][0]["outputs"]
    data: dict[str, Any] = shown["data"]
    assert '<progress value="5" max="5">' in "".join(data["text/html"])
    assert "".join(data["text/plain"]) == "<sum>: Succeeded: 5 of 5 steps are done."
    assert "".join(printed["text"]) == "Succeeded: 5 of 5 steps are done.\n"
