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

from rlt_pod import dump_stacks
from rlt_pod.report.driver_report import STACK_FILE

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


WAITING = """ray::TrainWorker.update_actor
state: S (sleeping)
Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3007)
    wrapper (torch/distributed/c10d_logger.py:83)
    clip_grad_norm (rlt_trainer/policy/update.py:141)
    Actor.update (rlt_trainer/policy/actor.py:96)
    <listcomp> (rlt_trainer/workers/train_worker.py:220)
    TrainWorker.update_actor (rlt_trainer/workers/train_worker.py:220)
    _resume_span (ray/util/tracing/tracing_helper.py:461)
    actor_method_executor (ray/_private/function_manager.py:689)
    main_loop (ray/_private/worker.py:1001)
    <module> (ray/_private/workers/default_worker.py:304)
Thread {pid} (idle): "ray_print_logs"
    wait (threading.py:327)
    print_worker_logs (ray/_private/worker.py:2203)
"""
"""The stack of a train worker that waits for a collective, from py-spy."""
LATE = WAITING.replace(
    "    all_reduce (torch/distributed/distributed_c10d.py:3007)\n    wrapper (torch/distributed/c10d_logger.py:83)\n"
    "    clip_grad_norm (rlt_trainer/policy/update.py:141)\n",
    "    select (selectors.py:415)\n    read_table (/app/data/loader.py:12)\n",
)
IDLE = """ray::TrainWorker
state: S (sleeping)
Thread {pid} (idle): "MainThread"
    main_loop (ray/_private/worker.py:1001)
    <module> (ray/_private/workers/default_worker.py:304)
"""
OWN = """ray::TrainWorker.update_actor
state: R (running)
Thread 0x00007f2b1cdfe640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py", line 2203 in print_worker_logs
Current thread 0x00007f2b3a5f1740 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3007 in all_reduce
  File "/opt/venv/lib/python3.11/site-packages/rlt_trainer/policy/update.py", line 141 in clip_grad_norm
  File "/opt/venv/lib/python3.11/site-packages/rlt_trainer/workers/train_worker.py", line 220 in update_actor
"""
"""The stack that a process writes itself, from faulthandler."""
DRIVER = """python3 -m rlt_trainer
state: S (sleeping)
Thread 5 (idle): "MainThread"
    wait (rlt_trainer/driver/run.py:9)
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
        "python3 /etc/rlt/rlt_pod.pyz dump-stacks /mnt/rlt",
    ],
)
def test_processes_of_ray_are_left_out(line: str) -> None:
    assert dump_stacks.OF_RAY.search(line)


@pytest.mark.parametrize("line", ["ray::TrainWorker.step", "python3 -m verl.trainer.main_ppo", "VLLM::EngineCore"])
def test_processes_of_the_program_are_included(line: str) -> None:
    assert not dump_stacks.OF_RAY.search(line)


def summarize(*texts: str) -> str:
    """The summary of processes 71, 72, ... in one pod each, and of a driver."""
    found = {f"sum-worker-{index}": [(71, text.format(pid=71))] for index, text in enumerate(texts)}
    return dump_stacks.summarize_stacks({"sum-head": [(5, DRIVER)], **found})


WHERE = "clip_grad_norm (rlt_trainer/policy/update.py:141)"


@pytest.mark.parametrize("late", range(4))
def test_the_late_rank_and_the_phase_are_named(late: int) -> None:
    texts = [LATE if index == late else WAITING for index in range(4)]
    assert summarize(*texts) == (
        f"1 of 4 processes of TrainWorker.update_actor is elsewhere: sum-worker-{late} 71 in read_table "
        f"(/app/data/loader.py:12); the others are in {WHERE}."
    )


def test_a_stopped_rank_is_named_where_the_others_are() -> None:
    stopped = WAITING.replace("S (sleeping)", "T (stopped)")
    found = summarize(WAITING, stopped, WAITING)
    assert f"is elsewhere: sum-worker-1 71 in {WHERE} [state: T (stopped)]; the others" in found


def test_a_stopped_rank_of_two_is_named() -> None:
    stopped = WAITING.replace("S (sleeping)", "T (stopped)")
    assert summarize(WAITING, stopped) == (
        f"1 of 2 processes of TrainWorker.update_actor is elsewhere: sum-worker-1 71 in {WHERE} [state: T (stopped)]; "
        f"the other is in {WHERE}."
    )
    assert summarize(stopped) == f"TrainWorker.update_actor is in {WHERE} [state: T (stopped)]."


def test_a_stopped_rank_between_two_methods_is_named() -> None:
    assert summarize(IDLE, IDLE.replace("S (sleeping)", "T (stopped)")) == (
        "1 of 2 processes of TrainWorker cannot run: sum-worker-1 71, idle, in main_loop (ray/_private/worker.py:1001) "
        "[state: T (stopped)]."
    )


def test_ranks_in_another_method_or_in_none_are_named() -> None:
    other = LATE.replace("update_actor", "log_probs")
    found = summarize(WAITING, WAITING, WAITING, IDLE, other)
    assert found.startswith("2 of 5 processes of TrainWorker.update_actor are elsewhere: ")
    assert "sum-worker-3 71, idle, in main_loop (ray/_private/worker.py:1001)" in found
    assert "sum-worker-4 71 in log_probs, in read_table (/app/data/loader.py:12)" in found


def test_a_rank_without_a_stack_is_named() -> None:
    none = f"{dump_stacks.NO_STACKS}py-spy: no such process\nray::TrainWorker.update_actor\nstate: D (disk sleep)\n"
    found = summarize(WAITING, WAITING, none)
    assert "sum-worker-2 71 in an unknown place [state: D (disk sleep)]; the others" in found


def test_two_ranks_have_no_majority() -> None:
    assert summarize(WAITING, LATE) == (
        f"The 2 processes of TrainWorker are in different places: sum-worker-0 71 in update_actor, in {WHERE}; "
        "sum-worker-1 71 in update_actor, in read_table (/app/data/loader.py:12)."
    )


def test_ranks_that_all_wait_give_the_phase() -> None:
    assert summarize(WAITING) == f"TrainWorker.update_actor is in {WHERE}."
    assert summarize(WAITING, WAITING) == f"All 2 processes of TrainWorker.update_actor are in {WHERE}."


def test_stacks_of_faulthandler_are_read() -> None:
    """Also beside the stacks of py-spy: the paths are the same."""
    assert summarize(OWN, WAITING) == f"All 2 processes of TrainWorker.update_actor are in {WHERE}."


@pytest.mark.parametrize("texts", [(), (IDLE, IDLE)])
def test_the_driver_is_named_if_no_actor_runs_a_method(texts: tuple[str, ...]) -> None:
    """As with a reward function that never returns."""
    expected = "No actor runs a method. Other processes: sum-head 5 in wait (rlt_trainer/driver/run.py:9)."
    assert summarize(*texts) == expected


def test_nothing_is_known_without_stacks() -> None:
    assert dump_stacks.summarize_stacks({"sum-head": [(5, f"{dump_stacks.NO_STACKS}ptrace\npython3 x.py\n")]}) == ""


def test_the_summary_names_few_of_many_ranks() -> None:
    found = summarize(*[LATE] * 6, *[WAITING] * 7)
    assert found.count("read_table") == dump_stacks.MAX_NAMED
    assert "; 2 more; the others" in found


def test_the_place_of_a_real_hung_process_is_its_blocking_function() -> None:
    with hung_process() as pid:
        place = dump_stacks.find_place(dump_stacks.dump_process(pid), "")
    assert place.startswith("the_blocking_function (<string>:")
