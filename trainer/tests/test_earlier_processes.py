"""The program of a later attempt on the same Ray cluster waits for its check. Chaos runs the check in real pods."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.clear import NOT_CLEAR
from rlt_trainer.__main__ import main
from rlt_trainer.driver.earlier_processes import NotClearError, await_end


def test_a_program_whose_check_fails_ends_before_it_writes(
    make_config: Callable[..., TrainingConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its Ray cluster does not answer."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "1")
    run = tmp_path / "run"
    file = tmp_path / "training.json"
    file.write_text(make_config(runDirectory=str(run)).model_dump_json(by_alias=True))
    options = ["--attempt", "2", "--holder", "sum-1-2", "--clear", "3"]
    assert main(["run", "--config", str(file), "--port", "0", *options]) == NOT_CLEAR
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "rlt-trainer: error: Processes of an earlier attempt may exist: it ended with code 1."
    assert not run.exists()


def test_what_the_check_finds_is_the_error_of_the_program() -> None:
    print_pod = f"print('pod a has 1 processes'); exit({NOT_CLEAR})"
    check = subprocess.Popen([sys.executable, "-c", print_pod], stdout=subprocess.PIPE, text=True)
    with pytest.raises(NotClearError, match=r"Processes of an earlier attempt may exist: pod a has 1 processes\."):
        await_end(check)
