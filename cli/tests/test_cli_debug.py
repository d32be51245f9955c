"""Breakpoints of a Ray program, and the port that leads to one."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rlt.kube_context import KubeContext
from rlt_cli import tunnel
from rlt_cli.breakpoints import (
    TASKS,
    WORKERS,
    Breakpoint,
    build_launch_configuration,
    format_breakpoints,
    parse_breakpoints,
)
from rlt_cli.commands.debug import choose_breakpoint
from rlt_cli.failure import Failure
from rlt_cli.tunnel import build_relay, open_tunnel

ID = "2da8cce2d0663f57076fd4ea7fb3653deb39c085c809bf157835070a"
WORKER = {
    "worker_id": ID,
    "is_alive": True,
    "worker_type": "WORKER",
    "ip": "10.0.0.7",
    "pid": 858,
    "debugger_port": 55307,
    "num_paused_threads": 1,
}
TASK = {"task_id": "16310a0f", "name": "TrainWorker.update_actor", "state": "RUNNING", "worker_id": ID}
PODS = [{"metadata": {"name": "sum-workers-a"}, "status": {"podIP": "10.0.0.7"}}]
BREAKPOINT = Breakpoint(
    id="2da8cce2", pod="sum-workers-a", ip="10.0.0.7", port=55307, pid=858, task="TrainWorker.update_actor"
)


def answer(*items: dict[str, Any]) -> str:
    """A response of Ray's state API."""
    result = {"total": len(items), "result": list(items), "partial_failure_warning": "", "warnings": None}
    return json.dumps({"result": True, "msg": "", "data": {"result": result}})


def test_a_breakpoint_has_the_pod_and_the_task_of_its_process() -> None:
    assert parse_breakpoints(answer(WORKER), answer(TASK), PODS) == [BREAKPOINT]
    assert format_breakpoints([BREAKPOINT]).splitlines()[1].split() == [
        "2da8cce2",
        "sum-workers-a",
        "858",
        "TrainWorker.update_actor",
    ]


def test_a_process_without_a_task_is_named_by_its_type() -> None:
    """Such as a driver, or a worker whose task Ray has not recorded yet. Its pod may be gone from the list."""
    (found,) = parse_breakpoints(answer({**WORKER, "worker_type": "DRIVER"}), answer(), [])
    assert (found.task, found.pod) == ("driver", "10.0.0.7")


@pytest.mark.parametrize(
    "worker",
    [
        {**WORKER, "num_paused_threads": 0},  # a debugger is attached
        {**WORKER, "debugger_port": None},
        {"worker_id": ID, "worker_type": "WORKER", "ip": "10.0.0.7", "pid": 858},  # Ray before 2.39
    ],
)
def test_a_process_that_does_not_wait_is_not_listed(worker: dict[str, Any]) -> None:
    assert parse_breakpoints(answer(worker), answer(TASK), PODS) == []


@pytest.mark.parametrize(("start", "chosen"), [("2d", "2da8cce2"), ("2da8cce2", "2da8cce2"), ("3", "3f00c001")])
def test_the_start_of_an_id_selects_a_breakpoint(start: str, chosen: str) -> None:
    found = [BREAKPOINT, replace(BREAKPOINT, id="3f00c001")]
    assert choose_breakpoint("sum", found, start, KubeContext(None, None, None)).id == chosen


@pytest.mark.parametrize(("start", "count"), [("", 2), ("4", 0)])
def test_an_id_without_or_with_several_breakpoints_is_an_error(start: str, count: int) -> None:
    found = [BREAKPOINT, replace(BREAKPOINT, id="3f00c001")]
    with pytest.raises(Failure, match=f"{count} waiting processes of job sum .* All IDs: 2da8cce2, 3f00c001."):
        choose_breakpoint("sum", found, start, KubeContext("demo", None, None))


def test_the_configuration_attaches_on_this_machine() -> None:
    configuration = build_launch_configuration("sum", 5678, "/workspace/verl")
    assert configuration["connect"] == {"host": "127.0.0.1", "port": 5678}
    assert configuration["pathMappings"] == [{"localRoot": "${workspaceFolder}", "remoteRoot": "/workspace/verl"}]


def build_local_relay(host: str, port: int) -> list[str]:
    """The command that kubectl runs in a pod, for this machine."""
    return [sys.executable, *build_relay(host, port)[1:]]


@asynccontextmanager
async def echo_server() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_the_tunnel_returns_all_bytes_of_several_connections() -> None:
    data = bytes(range(256)) * 2000

    async def send(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        received = await reader.read()
        writer.close()
        return received

    async with echo_server() as remote, open_tunnel(build_local_relay("127.0.0.1", remote), 0) as port:
        assert list(await asyncio.gather(send(port), send(port))) == [data, data]


async def test_the_reason_of_a_closed_connection_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the end of the connection, which the client can see first."""
    printed = asyncio.Queue[str]()
    monkeypatch.setattr(tunnel, "print_message", printed.put_nowait)
    async with echo_server() as remote:
        pass  # nothing listens there any more
    async with open_tunnel(build_local_relay("127.0.0.1", remote), 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        assert "the connection to the pod ended: ConnectionRefusedError" in await printed.get()
        writer.close()
        await writer.wait_closed()


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Callable[[str], str]]:
    """Starts a Ray cluster, and yields a function that gets a path of its dashboard."""
    import ray

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{context.dashboard_url}{path}") as response:
            return str(response.read().decode())

    variables = {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        context: Any = ray.init(
            address="local", num_cpus=1, include_dashboard=True, dashboard_port=0, runtime_env={"env_vars": variables}
        )
        yield get
        ray.shutdown()


class Client:
    """A debugger: a client of the Debug Adapter Protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.numbers = count(1)

    def send(self, command: str, **arguments: Any) -> None:
        request = {"seq": next(self.numbers), "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(request).encode()
        self.writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def receive(self, *, event: str | None = None, command: str | None = None) -> dict[str, Any]:
        """The body of the next event or response of that name."""
        while True:
            heading = await self.reader.readuntil(b"\r\n\r\n")
            message = json.loads(await self.reader.readexactly(int(heading.split(b":")[1])))
            if (event and message.get("event") == event) or (command and message.get("command") == command):
                return dict(message.get("body", {}))


async def await_breakpoint(get: Callable[[str], str]) -> Breakpoint:
    """Wait for a breakpoint, and for its task, which Ray records up to a second later."""
    async with asyncio.timeout(120):
        while True:
            found = parse_breakpoints(await asyncio.to_thread(get, WORKERS), get(TASKS), [])
            if found and found[0].task != "worker":
                return found[0]
            await asyncio.sleep(0.5)  # Ray's state API has no watch


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("debugpy") is None, reason="debugpy is not installed")
@pytest.mark.parametrize("method", ["stop", "fail"])
async def test_a_debugger_attaches_at_a_breakpoint_and_after_an_error(
    dashboard: Callable[[str], str], method: str
) -> None:
    import ray

    class Divider:
        def stop(self, number: int) -> float:
            breakpoint()
            return 84 / number

        def fail(self, number: int) -> float:
            return number / 0

    actor: Any = ray.remote(num_cpus=0)(Divider).remote()
    result = getattr(actor, method).remote(42)
    at = await await_breakpoint(dashboard)
    assert at.task == f"Divider.{method}"
    async with open_tunnel(build_local_relay(at.ip, at.port), 0) as port, asyncio.timeout(60):
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.send("initialize", adapterID="debugpy")
        client.send("attach", justMyCode=False)
        await client.receive(event="initialized")
        client.send("setExceptionBreakpoints", filters=["uncaught"])  # the default of VS Code
        client.send("configurationDone")
        thread = (await client.receive(event="stopped"))["threadId"]
        client.send("stackTrace", threadId=thread)
        frame = (await client.receive(command="stackTrace"))["stackFrames"][0]
        assert (frame["name"], Path(frame["source"]["path"]).name) == (method, Path(__file__).name)
        client.send("scopes", frameId=frame["id"])
        scope = (await client.receive(command="scopes"))["scopes"][0]
        client.send("variables", variablesReference=scope["variablesReference"])
        values = {each["name"]: each["value"] for each in (await client.receive(command="variables"))["variables"]}
        assert values["number"] == "42"
        client.send("continue", threadId=thread)
        if method == "stop":
            value: object = await asyncio.to_thread(ray.get, result)
            assert value == 2
        else:
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(ray.get, result)
