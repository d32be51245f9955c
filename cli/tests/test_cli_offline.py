"""Commands that need no cluster start fast and do not import the packages of the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples/01-arithmetic-grpo.yaml")
RLT = ["-m", "rlt_cli.main"]

HEAVY = ("kubernetes", "kopf", "aiohttp", "rich", "torch", "ray", "transformers", "prometheus_client")


@pytest.mark.parametrize("arguments", [["validate", EXAMPLE], ["render", EXAMPLE], ["explain", "topP"], ["init"]])
def test_offline_commands_import_no_heavy_package(arguments: list[str]) -> None:
    script = (
        "import sys; from rlt_cli.main import cli\n"
        f"try: cli({arguments!r})\n"
        f"finally: print('imported:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("imported: []\n")


def function_calls(statement: str) -> int:
    """Number of function calls of one statement in a new process. (CPU time varies by half between two runs.)"""
    script = (
        "import contextlib, io, itertools, sys; calls = itertools.count()\n"
        "sys.setprofile(lambda frame, event, argument: event in ('call', 'c_call') and next(calls))\n"
        f"with contextlib.redirect_stdout(io.StringIO()): {statement}\n"
        "sys.setprofile(None); print(next(calls))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("command", ["validate", "render"])
def test_a_command_makes_at_most_eleven_times_the_calls_of_importing_pydantic_and_yaml(command: str) -> None:
    """0.5 s if the two imports take 0.06 s."""
    arguments = [command, EXAMPLE]
    unit = function_calls("import pydantic, yaml")
    assert function_calls(f"from rlt_cli.main import cli; cli({arguments!r}, standalone_mode=False)") < 11 * unit


def test_an_unknown_command_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, *RLT, "valdate"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No such command 'valdate'" in done.stderr


def test_output_has_no_color_outside_a_terminal() -> None:
    done = subprocess.run([sys.executable, *RLT, "explain"], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout + done.stderr
