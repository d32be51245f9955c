"""Environments and agents in processes: one for each conversation, forked from a server that imported the module."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.prompt import Messages, Prompt
from rlt_trainer.environments.session import Reply, SampledTurn, SessionError

START_TIMEOUT_S = 60.0
"""Timeout for a server to load the environment's module, and for a process to start."""
MAX_LINE_BYTES = 64 * 2**20
"""Maximum size of one reply."""

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a request of a process."""


class ForkServerError(Exception):
    """A server did not start."""


class ForkServer:
    """A process that forks others, which share what it has loaded."""

    def __init__(
        self, module: str, *arguments: str, given: Callable[[], bytes] = bytes, start_timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """`python -m MODULE ARGUMENTS FD`, with the value of `given` as its standard input."""
        self._start_timeout_s = start_timeout_s
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._given = given
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self) -> ForkedProcess:
        """Start a process, and the server if it does not run. Raises ForkServerError."""
        if self._control is None or self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"f"], [theirs.fileno()])
        return ForkedProcess(ours)

    def close(self) -> None:
        """End the server. Its forks continue."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.wait()
        self._control = None
        self._process = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            file.write(self._given())
            file.seek(0)
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=file,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(self._start_timeout_s)
        try:
            with ours.makefile("r", encoding="ascii") as replies:
                reply = json.loads(replies.readline() or '{"error": "its process exited"}')
        except TimeoutError:
            self._process.kill()
            reply = {"error": f"it did not start within {self._start_timeout_s:g} s"}
        if "error" in reply:
            self.close()
            raise ForkServerError(reply["error"])


class EnvironmentProcesses:
    """Starts a process for each conversation. A process that exits or hangs ends alone."""

    def __init__(self, multi_turn: MultiTurn) -> None:
        self._multi_turn = multi_turn
        config = multi_turn.model_dump_json(by_alias=True)
        self._server = ForkServer("rlt_trainer.environments.fork_server", config)

    def open_session(self, prompt: Prompt) -> EnvironmentProcess:
        """Start an environment for a conversation on `prompt`. Raises ValueError if it cannot be loaded."""
        return EnvironmentProcess(self.fork(), prompt, self._multi_turn.timeout_seconds)

    def fork(self) -> ForkedProcess:
        """Start a process. Raises ValueError if the user-defined environment or agent cannot be loaded."""
        try:
            return self._server.fork()
        except ForkServerError as error:
            agent = self._multi_turn.agent
            name = self._multi_turn.environment
            given = f"agent {agent.name}" if agent else f"environment {name}"
            raise ValueError(f"rollout.multiTurn.{given}: {error}. Correct the module.") from None

    def close(self) -> None:
        """End the server. Conversations in progress continue."""
        self._server.close()


class ForkedProcess:
    """A process that a ForkServer started."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._writer: asyncio.StreamWriter | None = None
        self._pid = 0

    async def start(self) -> None:
        """Wait until the process runs. Raises SessionError."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._connection, limit=MAX_LINE_BYTES)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self._pid = json.loads(await self._reader.readline() or '{"pid": 0}')["pid"]
        except (TimeoutError, ConnectionError) as error:
            raise SessionError(f"{type(error).__name__}: its process did not start") from error

    async def call(self, call: dict[str, Any], answer: Answer | None = None) -> Any:
        """Return the value of a call. `answer` answers requests that the process has during it. Raises
        SessionError, and what `answer` raises."""
        reply = await self._exchange(call)
        while answer is not None and "request" in reply:
            reply = await self._exchange(await answer(reply["request"]))
        if "error" in reply:
            raise SessionError(reply["error"])
        return reply["value"]

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._writer is not None
        try:
            self._writer.write(json.dumps(message, default=str).encode() + b"\n")
            line = await self._reader.readline()
        except (ConnectionError, ValueError) as error:
            raise SessionError(f"{type(error).__name__}: {error}") from error
        if not line.endswith(b"\n"):
            raise SessionError("its process exited")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """End the process and its children, also if a call hangs."""
        if self._writer is None:
            self._connection.close()
            return
        self._writer.close()
        if self._pid:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)


class EnvironmentProcess:
    """The environment of one conversation."""

    def __init__(self, process: ForkedProcess, prompt: Prompt, timeout_s: float) -> None:
        self._process = process
        self._prompt = prompt
        self._timeout_s = timeout_s

    async def reset(self) -> Messages:
        """See Session."""
        await self._process.start()
        return _as_messages(await self._call({"reset": asdict(self._prompt)}))

    async def step(self, turn: SampledTurn) -> Reply:
        """See Session."""
        value = await self._call({"step": turn.text})
        try:
            observation, reward, is_done = value
            number = None if reward is None else float(reward)
        except (TypeError, ValueError) as error:
            message = f"step returned {str(value)[:80]} instead of (observation, reward or None, whether it has ended)"
            raise SessionError(message) from error
        return Reply(_as_messages(observation), number, bool(is_done))

    async def close(self) -> None:
        """See Session."""
        self._process.close()

    async def _call(self, call: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._process.call(call)
        except TimeoutError:
            self._process.close()
            raise SessionError(f"TimeoutError: it did not end within {self._timeout_s:g} s") from None


def _as_messages(observation: Any) -> Messages:
    if observation is None:
        return []
    if not isinstance(observation, str):
        raise SessionError(f"the observation {str(observation)[:80]} is not text")
    return [{"role": "user", "content": observation}]
