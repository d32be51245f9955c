import os
import subprocess
from pathlib import Path

import pytest

from rlt_e2e.cluster import processes
from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import StageError


def start_sleep(state: Path, name: str) -> None:
    processes.start(name, ["sleep", "600"], state=state, log=state / "log", search_path=os.environ["PATH"])
    processes.wait_for(name, lambda: name in names(state), timeout_s=10, log=state / "log")


def names(state: Path) -> list[str]:
    return [process.name for process in processes.list_running(state)]


def test_daemon_is_found_by_its_marker_and_killed(tmp_path: Path) -> None:
    start_sleep(tmp_path, "sleeper")
    assert names(tmp_path) == ["sleeper"]
    processes.kill(process.pid for process in processes.list_running(tmp_path))
    assert names(tmp_path) == []


def test_daemons_of_another_state_folder_are_not_killed(tmp_path: Path) -> None:
    one = tmp_path / "one"
    other = tmp_path / "other"
    for state in (one, other):
        state.mkdir()
        start_sleep(state, "sleeper")
    processes.kill(process.pid for process in processes.list_running(one))
    assert names(other) == ["sleeper"]
    processes.kill(process.pid for process in processes.list_running(other))


def test_daemon_does_not_inherit_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "value")
    start_sleep(tmp_path, "sleeper")
    (sleeper,) = processes.list_running(tmp_path)
    assert b"A_SECRET" not in Path(f"/proc/{sleeper.pid}/environ").read_bytes()
    processes.kill([sleeper.pid])


def test_killing_an_ended_process_is_not_an_error() -> None:
    processes.kill([2**22 - 1])


def test_wait_ends_with_the_process(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="etcd: the process ended"):
        processes.wait_for("etcd", lambda: False, timeout_s=60, log=tmp_path / "log", alive=lambda: False)


def test_lock_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    other = ["flock", "--nonblock", str(tmp_path / "lock"), "true"]
    with exclusive_lock(tmp_path / "lock"):
        assert subprocess.run(other).returncode == 1
    assert subprocess.run(other).returncode == 0
