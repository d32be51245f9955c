"""The copies of Ray's logs at the end of a pod."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rlt_pod import hooks as pod_hooks
from rlt_pod import keep_logs


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Ray's logs of this pod."""
    folder = tmp_path / "session/logs"
    folder.mkdir(parents=True)
    monkeypatch.setattr(keep_logs, "SESSION_LOGS", str(folder))
    monkeypatch.setattr(pod_hooks, "end_program", lambda: None)
    return folder


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the copies."""
    monkeypatch.setenv(keep_logs.ATTEMPT_DIRECTORY, str(tmp_path / "attempts/1"))
    return tmp_path / "attempts/1/ray" / socket.gethostname()


def test_logs_are_copied_by_the_hook_except_those_with_environments(session: Path, kept: Path) -> None:
    for name in ("raylet.out", "worker-1-01.err", "gcs_server.out.1", "job-driver-sum.log", "runtime_env_agent.log"):
        (session / name).write_text(name)
    (session / "empty.out").touch()
    (session / "agent.json").write_text("{}")
    assert pod_hooks.main(["pre-stop"]) == 0
    assert {file.name: file.read_text() for file in kept.iterdir()} == {
        name: name for name in ("raylet.out", "worker-1-01.err", "gcs_server.out.1")
    }


def test_the_size_is_bounded_and_the_latest_logs_have_precedence(
    session: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_logs, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(keep_logs, "MAX_POD_BYTES", 250)
    for age in range(9):
        file = session / f"worker-{age}.out"
        file.write_text(f"{age}: a line\n" * 50)
        os.utime(file, (1000 - age, 1000 - age))
    keep_logs.keep_logs()
    files = sorted(kept.iterdir())
    assert [file.name for file in files] == ["worker-0.out", "worker-1.out", "worker-2.out"]
    assert sum(file.stat().st_size for file in files) <= 250
    assert all(line.endswith(": a line") for file in files for line in file.read_text().splitlines())


def test_secret_variables_are_masked(session: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/etc/rlt-ray-token/auth_token")
    (session / "worker-1.err").write_text("login hf_abcdefgh, key=0123456789abcdef, /etc/rlt-ray-token/auth_token")
    keep_logs.keep_logs()
    assert (kept / "worker-1.err").read_text() == "login ***, key=***, /etc/rlt-ray-token/auth_token"


def test_a_job_without_a_volume_keeps_nothing(session: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(keep_logs.ATTEMPT_DIRECTORY, raising=False)
    (session / "raylet.out").write_text("a")
    keep_logs.keep_logs()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["session"]


def test_a_storage_that_hangs_does_not_keep_the_pod(session: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named pipe without a reader in place of the copy."""
    monkeypatch.setattr(keep_logs, "TIMEOUT_S", 0.1)
    (session / "raylet.out").write_text("a")
    kept.mkdir(parents=True)
    os.mkfifo(kept / "raylet.out")
    keep_logs.keep_logs()
    os.close(os.open(kept / "raylet.out", os.O_RDONLY | os.O_NONBLOCK))


def test_a_volume_that_cannot_be_written_is_reported(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(keep_logs.ATTEMPT_DIRECTORY, str(tmp_path / "file"))
    assert pod_hooks.main(["pre-stop"]) == 0
    assert "Not a directory" in capsys.readouterr().out
