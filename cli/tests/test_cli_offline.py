"""Commands that need no cluster start fast and do not import the packages of the others."""

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
def test_offline_commands_import_no_heavy_package(arguments: list[str]) -> None:
    script = (
        "import sys; from rlt_cli.main import cli\n"
        f"try: cli({arguments!r})\n"
        f"finally: print('imported:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("imported: []\n")


def cpu_seconds(*arguments: str) -> float:
    """CPU time of the fastest of three runs. (Wall time would include other processes.)"""

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
def test_a_command_takes_at_most_eight_times_the_import_of_pydantic_and_yaml(command: str) -> None:
    """0.56 s if the two imports take 0.07 s."""
    unit = cpu_seconds("-c", "import pydantic, yaml")
    assert cpu_seconds(*RLT, command, EXAMPLE) < 8 * unit


def test_an_unknown_command_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, *RLT, "valdate"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No such command 'valdate'" in done.stderr


def test_output_has_no_color_outside_a_terminal() -> None:
    done = subprocess.run([sys.executable, *RLT, "explain"], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout + done.stderr
