"""TensorBoard and Weights & Biases record every step, continue after a resume, and never stop the training."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.telemetry.sinks import Sinks, build_sinks
from rlt_trainer.telemetry.tensorboard_sink import TensorBoardSink

MakeConfig = Callable[..., TrainingConfig]
BLOCK = 32768
WHOLE = 1
LAST = 4
KEY = {"apiKey": {"name": "wandb", "key": "api-key"}}


def curve(directory: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(directory))
    events.Reload()
    return [(event.step, round(event.value, 3)) for event in events.Scalars(name)]


def test_tensorboard_continues_the_curve_of_a_resumed_run(make_config: MakeConfig) -> None:
    config = make_config(observability={"tensorboard": {}})
    for steps, reward in ((range(1, 5), 0.1), (range(3, 6), 0.2)):  # killed after step 4, resumed from step 2
        sinks = build_sinks(config)
        for step in steps:
            sinks.step(step, {"critic/rewards/mean": reward})
        sinks.close()
    expected = [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2), (5, 0.2)]
    assert curve(Path(config.run_directory) / "tensorboard", "critic/rewards/mean") == expected


def test_a_step_can_be_read_while_the_run_continues(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.step(1, {"actor/pg_loss": -0.5})
    assert curve(tmp_path, "actor/pg_loss") == [(1, -0.5)]
    sink.close()


class Failing:
    name = "a sink"

    def __init__(self) -> None:
        self.calls = 0

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.calls += 1
        raise RuntimeError("no route to host")

    def close(self) -> None:
        raise AssertionError("it was never opened")


def test_a_sink_that_fails_is_logged_once_and_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing()
    sinks = Sinks([failing, TensorBoardSink(tmp_path)])
    for step in (1, 2, 3):
        sinks.step(step, {"a": 1.0})
    sinks.close()
    assert failing.calls == 1
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "a sink failed and receives no metrics from step 1 on: no route to host"
    ]
    assert len(curve(tmp_path, "a")) == 3


def records(file: Path) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, after wandb's header of 7 bytes."""
    content = file.read_bytes()
    place = 7
    record = b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        kind = content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def offline_runs(config: TrainingConfig) -> list[tuple[str, list[dict[str, str]]]]:
    """The run id and the steps of each offline wandb file."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    runs = []
    for file in sorted(Path(config.run_directory).glob("wandb/offline-run-*/*.wandb")):
        messages = [Record.FromString(record) for record in records(file)]
        (run_id,) = {message.run.run_id for message in messages if message.HasField("run")}
        steps = [message.history.item for message in messages if message.HasField("history")]
        runs.append((run_id, [{"/".join(i.nested_key) or i.key: i.value_json for i in step} for step in steps]))
    return runs


class Proxy(HTTPServer):
    """Records the requested paths and rejects all requests."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        super().__init__(("127.0.0.1", 0), RejectingHandler)


class RejectingHandler(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        self.server.requested.append(self.path)
        self.send_error(403)

    do_GET = do_CONNECT = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = Proxy()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def wandb_session() -> Iterator[None]:
    """wandb reads the environment variables once per session."""
    yield
    import wandb

    wandb.teardown()


@pytest.mark.slow
@pytest.mark.usefixtures("wandb_session")
def test_wandb_offline_files_have_every_step_of_one_run(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    config = make_config(observability={"wandb": KEY})
    Path(config.run_directory).mkdir()
    for steps in ((1, 2), (3,)):
        sinks = build_sinks(config)
        for step in steps:
            sinks.step(step, {"critic/rewards/mean": step / 10})
        sinks.close()
    wandb.teardown()  # ends the process that writes the files
    (first, begun), (second, resumed) = offline_runs(config)
    assert first == second
    assert [(row["_step"], row["critic/rewards/mean"]) for row in [*begun, *resumed]] == [
        ("1", "0.1"),
        ("2", "0.2"),
        ("3", "0.3"),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("wandb_session")
def test_only_wandb_uses_the_proxy(
    make_config: MakeConfig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    url = f"http://127.0.0.1:{proxy.server_port}"
    settings = {**KEY, "proxy": url, "baseUrl": "http://wandb.example.invalid"}
    config = make_config(observability={"wandb": settings})
    Path(config.run_directory).mkdir()
    sinks = build_sinks(config)
    sinks.step(1, {"a": 1.0})
    sinks.close()
    assert any("wandb.example.invalid" in path for path in proxy.requested), proxy.requested
    assert not [name for name in os.environ if "PROXY" in name.upper() and url in os.environ[name]]
    assert "Weights & Biases failed" in caplog.text
