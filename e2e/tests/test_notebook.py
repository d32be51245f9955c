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


LOCAL_RUN = """
from contextlib import suppress
from rlt import Job
from rlt.errors import JobFailedError
script = "for step in range(1, 4): print(f'step:{step} - critic/score/mean:{step / 4}')"
job = Job(
    "count",
    framework={"type": "command", "command": ["python3", "-c", f"{script}\\nraise SystemExit(CODE)"], "totalSteps": 4},
    cluster={"image": "none", "workers": [{"resources": {"cpu": "1", "memory": "1Gi"}}]},
)
with suppress(JobFailedError):
    job.local_run("DIRECTORY")
"""
"""The program ends with a code after three of four steps."""


def execute(cell: str) -> list[dict[str, Any]]:
    """Run a cell in a kernel. Return its outputs."""
    python = install("notebook", on_top=True)
    packages = os.pathsep.join(str(ROOT / name) for name in ("client", "core", "api", "pod"))
    environment = {**os.environ, "PYTHONPATH": packages}
    done = subprocess.run([python, "-c", EXECUTE], input=cell, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outputs: list[dict[str, Any]] = json.loads(done.stdout)["cells"][0]["outputs"]
    return outputs


def test_a_notebook_replaces_its_output_in_place() -> None:
    shown, printed = execute(CELL)
    data: dict[str, Any] = shown["data"]
    assert '<progress value="5" max="5">' in "".join(data["text/html"])
    assert "".join(data["text/plain"]) == "<sum>: Succeeded: 5 of 5 steps are done."
    assert "".join(printed["text"]) == "Succeeded: 5 of 5 steps are done.\n"


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_local_run_is_shown_in_the_notebook(tmp_path: Path, code: int, phase: str) -> None:
    shown, printed = execute(LOCAL_RUN.replace("CODE", str(code)).replace("DIRECTORY", str(tmp_path)))
    html = "".join(shown["data"]["text/html"])
    assert '<progress value="3" max="4">' in html
    assert "<h3>Reward</h3><div><svg" in html
    assert "".join(shown["data"]["text/plain"]) == f"count: {phase}: The program has ended with exit code {code}."
    assert "step:3 - critic/score/mean:0.75" in "".join(printed["text"]).splitlines()
