"""The program that writes the stacks of a Ray cluster's processes, on real processes. Ray itself is tested with the
operator (operator/tests/apiserver/test_no_progress.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlt_api.driver_report import STACK_FILE
from rlt_core import dump_stacks

HANG = """
import threading
{start}
def the_blocking_function():
    print("ready", flush=True)
    threading.Event().wait()
the_blocking_function()
"""
WRITE_ON_SIGNAL = f"""
import faulthandler, os, signal
faulthandler.register(signal.SIGUSR1, file=os.memfd_create({STACK_FILE!r}), all_threads=True)
"""


@contextmanager
def hung_process(start: str = "") -> Iterator[int]:
    """The pid of a Python process that waits in the_blocking_function."""
    command = [sys.executable, "-c", HANG.format(start=start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        assert process.poll() is None, "the process has ended"
        process.kill()


@pytest.fixture
def no_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy is not installed."""
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)


@pytest.mark.parametrize("stopped", [False, True])
def test_py_spy_reads_the_stack_of_a_hung_process(stopped: bool) -> None:
    """Also of one that does not run, for which ptrace would wait."""
    with hung_process() as pid:
        if stopped:
            os.kill(pid, signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        text = dump_stacks.dump_process(pid)
    assert "    the_blocking_function (<string>:" in text
    assert text.count("print(") <= 1  # of the command line, the start
    assert ("state: T (stopped)" in text) is stopped


def test_a_process_writes_its_own_stack_without_py_spy(no_py_spy: None) -> None:
    with hung_process(WRITE_ON_SIGNAL) as pid:
        for _ in range(2):
            text = dump_stacks.dump_process(pid)
            assert text.count("in the_blocking_function") == 1
            assert not text.startswith(dump_stacks.NO_STACKS)


def test_a_process_without_handler_survives(no_py_spy: None) -> None:
    with hung_process() as pid:
        text = dump_stacks.dump_process(pid)
    assert text.startswith("no stacks: py-spy is not installed; the process does not write its own stacks\n")
    assert "state: " in text


def test_a_stopped_process_without_py_spy_has_no_stack(no_py_spy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_stacks, "PROCESS_TIMEOUT_S", 0.5)
    with hung_process(WRITE_ON_SIGNAL) as pid:
        os.kill(pid, signal.SIGSTOP)
        assert "the process did not write its stacks" in dump_stacks.dump_process(pid)


def test_a_process_that_has_ended_is_reported() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert dump_stacks.dump_process(process.pid).startswith(dump_stacks.NO_STACKS)


def test_stacks_are_written_by_pod_and_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stacks = {"sum-head-a": [(7, "Thread 7"), (9, f"{dump_stacks.NO_STACKS}x")], "sum-worker-b": [(7, "Thread 8")]}
    report = dump_stacks.write_stacks(tmp_path / "stacks", stacks)
    assert report == {"directory": str(tmp_path / "stacks"), "processes": 2, "pods": 2}
    assert sorted(path.name for path in (tmp_path / "stacks").iterdir()) == [
        "sum-head-a-7.txt",
        "sum-head-a-9.txt",
        "sum-worker-b-7.txt",
    ]
    assert "--- sum-worker-b 7\nThread 8\n" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    report = dump_stacks.write_stacks(tmp_path / "file", {"sum-head-a": [(7, "Thread 7")]})
    assert (report["processes"], report["error"]) == (1, f"{tmp_path / 'file'}: File exists")


@pytest.mark.parametrize(
    "line",
    [
        "ray::IDLE",
        "ray::DashboardAgent",
        "ray::JobSupervisor",
        "/usr/bin/python /site-packages/ray/dashboard/agent.py --node-id=1",
        "python3 /etc/rlt/dump_stacks.py /mnt/rlt",
    ],
)
def test_processes_of_ray_are_left_out(line: str) -> None:
    assert dump_stacks.OF_RAY.search(line)


@pytest.mark.parametrize("line", ["ray::TrainWorker.step", "python3 -m verl.trainer.main_ppo", "VLLM::EngineCore"])
def test_processes_of_the_program_are_included(line: str) -> None:
    assert not dump_stacks.OF_RAY.search(line)
