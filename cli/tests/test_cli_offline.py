"""rlt's commands that need no cluster, as their users call them: fast, and without what only others need."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples/01-arithmetic-grpo.yaml")
RLT = ["-m", "rlt_cli.main"]

HEAVY = ("kubernetes", "kopf", "aiohttp", "rich", "torch", "ray", "transformers", "prometheus_client")


@pytest.mark.parametrize("arguments", [["validate", EXAMPLE], ["render", EXAMPLE], ["explain", "topP"], ["init"]])
def test_nothing_is_imported_that_only_others_need(arguments: list[str]) -> None:
    script = (
        "import sys; from rlt_cli.main import cli\n"
        f"try: cli({arguments!r})\n"
        f"finally: print('imported:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("imported: []\n")


def processor_seconds(*arguments: str) -> float:
    """Of the quickest of three runs. (Not time on the clock: other processes would be in it.)"""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    runs = []
    for _ in range(3):
        before = used()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        runs.append(used() - before)
    return min(runs)


@pytest.mark.parametrize("command", ["validate", "render"])
def test_the_answer_takes_few_times_what_pydantic_and_yaml_take_to_import(command: str) -> None:
    """0.5 s where the two imports take 0.07 s, as they do on the machine that this was written on."""
    unit = processor_seconds("-c", "import pydantic, yaml")
    assert processor_seconds(*RLT, command, EXAMPLE) < 7 * unit


def test_a_command_that_is_none_is_a_wrong_command_line() -> None:
    done = subprocess.run([sys.executable, *RLT, "valdate"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No such command 'valdate'" in done.stderr


def test_nothing_is_coloured_off_a_terminal() -> None:
    done = subprocess.run([sys.executable, *RLT, "explain"], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout + done.stderr
