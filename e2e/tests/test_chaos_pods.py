"""A process is stopped inside a call of its actor, for the faults that need this moment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlt_e2e.chaos import pods
from rlt_e2e.chaos.pods import Pod, stop_in_call
from rlt_e2e.cluster.layout import Layout

LAYOUT = Layout(Path("/state"), 1)
POD = Pod("train-0", "team", "uid", "node-1", "10.0.0.1", "container", is_head=False)


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the title of an actor that sends weights, as the one process of the pod."""
    with subprocess.Popen(["ray::TrainWorker.send_weights", "60"], executable="sleep") as process:
        monkeypatch.setattr(pods, "list_pids", lambda layout, pod, title: [process.pid])
        yield process
        process.kill()


def read_state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_is_stopped_until_the_end_of_the_block(sender: subprocess.Popen[bytes]) -> None:
    with stop_in_call(LAYOUT, POD, "TrainWorker", "send_weights"):
        assert read_state(sender) == "T"
    sender.terminate()
    assert sender.wait(10) < 0, "a stopped process does not end by SIGTERM"


def test_a_method_that_is_not_called_is_named(sender: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "CALL_TIMEOUT_S", 0.01)
    with (
        pytest.raises(TimeoutError, match=r"TrainWorker in pod train-0 did not run save within 0\.01 s"),
        stop_in_call(LAYOUT, POD, "TrainWorker", "save"),
    ):
        pass
    assert read_state(sender) != "T"
