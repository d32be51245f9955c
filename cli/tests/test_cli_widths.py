"""Pages and tables at widths of terminals, and on a real one.

- no line of a page is longer than the terminal is wide;
- the texts at 60, 80 and 200 columns are compared with cli/tests/pages (UPDATE_GOLDEN=1 writes them);
- colors exist only on a terminal, and not with NO_COLOR.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from rlt_cli.pages.job import format_page, format_watch_page
from rlt_cli.table import format_table

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PAGES = Path(__file__).parent / "pages"
WIDTHS = (60, 80, 200)
MESSAGE = "2 of 4 worker pods are ready: Unschedulable: 0/6 nodes are available: 6 Insufficient nvidia.com/gpu."
CHECK = {
    "name": "all-reduce",
    "result": "passed",
    "value": "41.2 GB/s",
    "threshold": "20.0 GB/s",
    "message": "All sums are correct.",
}
CLOCKS = {"name": "clocks", "result": "warned", "value": "31.5 s", "message": "A clock differs.", "remedy": "Use NTP."}
FINDING = {
    "code": "GpuOutOfMemory",
    "severity": "error",
    "message": "A process needs more GPU memory than is free on its device, also after the cache is emptied.",
    "pod": "sum-workers-worker-9rhxk",
    "rank": 3,
    "evidence": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 512 MiB free.",
    "remedy": "Lower spec.training.ppoMicroBatchSizePerDevice, or set spec.training.useDynamicBsz.",
    "source": "https://docs.pytorch.org/docs/stable/notes/cuda.html",
}
POD = {
    "metadata": {"name": "sum-workers-worker-9rhxk", "creationTimestamp": "2026-01-02T03:01:05Z"},
    "spec": {"nodeName": "gpu-node-1"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
HISTORY: list[dict[str, float | None]] = [
    {
        "step": step,
        "critic/rewards/mean": step / 50,
        "actor/kl_loss": None if step == 7 else 0.001 * step,
        "timing_s/gen": 1.5,
        "timing_s/update_actor": 0.5,
        "timing_s/step": 2.25,
    }
    for step in range(1, 46)
]


def condition(type: str, status: str, minute: int, message: str = "The job is progressing.") -> dict[str, Any]:
    time = f"2026-01-02T03:{minute:02}:05Z"
    return {"type": type, "status": status, "reason": "Because", "message": message, "lastTransitionTime": time}


def build_job(phase: str, message: str, *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"name": "sum", "namespace": "demo", "generation": 1}
    found = {"phase": phase, "message": message, "conditions": list(conditions), "model": "/models/qwen3-8b"}
    return {"metadata": metadata, "status": {**found, "algorithm": "grpo", **status}}


STARTING = build_job(
    "Provisioning",
    MESSAGE,
    condition("Accepted", "True", 0, "The spec is valid."),
    condition("FabricVerified", "True", 1, "4 nodes agree on InfiniBand."),
    condition("ClusterReady", "False", 2, "2 pods wait for nodes with 8 accelerators, which no node group has."),
    condition("PreflightPassed", "False", 2),
    condition("Running", "False", 2),
    preflight=[CHECK, CLOCKS],
)
RUNNING = build_job(
    "Running",
    "The Ray job is running.",
    condition("Accepted", "True", 0, "The spec is valid."),
    condition("Running", "True", 2),
    progress={
        "step": 45,
        "totalSteps": 100,
        "percent": 45,
        "display": "45%",
        "eta": "3m10s",
        "tokensPerSecond": 1234.5,
    },
    findings=[FINDING],
)


def draw(name: str, width: int | None) -> str:
    if name == "starting":
        return format_watch_page(STARTING, [], NOW, width)
    if name == "running":
        return format_watch_page(RUNNING, HISTORY, NOW, width)
    return format_page(RUNNING, [POD], HISTORY, NOW, width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["starting", "running", "status"])
def test_pages_at_three_widths(name: str, width: int) -> None:
    drawn = click.unstyle(draw(name, width)) + "\n"
    file = PAGES / f"{name}-{width}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(drawn)
    assert max(map(len, drawn.splitlines())) <= width
    assert drawn == file.read_text()


def test_without_a_width_no_line_is_wrapped() -> None:
    assert [line.lstrip() for line in draw("starting", None).splitlines()].count(MESSAGE) == 1


def test_a_table_that_is_too_wide_has_a_line_for_each_cell() -> None:
    columns = ("NAME", "PHASE", "STEP")
    rows = [("a" * 20, "Running", 7), ("b" * 20, "Pending", None)]
    assert format_table(columns, rows, 28).splitlines() == [
        *(f"NAME    {'a' * 20}", "PHASE   Running", "STEP    7"),
        *("", f"NAME    {'b' * 20}", "PHASE   Pending"),
    ]
    assert format_table(columns, rows[:1], 36).splitlines()[1] == f"{'a' * 20}  Running  7"


def diagnose(log: Path, width: int, **environment: str) -> str:
    """The output of `rlt diagnose` on a pseudo terminal of this width."""
    child, terminal = pty.fork()
    if child == 0:
        command = [sys.executable, "-m", "rlt_cli.main", "diagnose", str(log)]
        inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        os.execve(command[0], command, {**inherited, "TERM": "xterm-256color", **environment})
    printed = b""
    with contextlib.suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as screen:  # EIO: the program has ended
        while part := screen.read(4096):
            printed += part
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return printed.decode()


def test_a_terminal_has_colors_and_its_width(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text(f"{FINDING['evidence']}\n")
    drawn = diagnose(log, 60)
    assert drawn.startswith("\x1b[31m\x1b[1mGpuOutOfMemory (error)\x1b[0m\r\n")
    plain = diagnose(log, 60, NO_COLOR="1")
    assert plain == diagnose(log, 60, TERM="dumb") == click.unstyle(drawn)
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 60
    command = [sys.executable, "-m", "rlt_cli.main", "diagnose", str(log)]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    assert f"   evidence  {FINDING['evidence']}" in piped.splitlines()
