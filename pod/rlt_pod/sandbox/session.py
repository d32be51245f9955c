"""The connection of a claimed sandbox: what the driver's requests do."""

from __future__ import annotations

import asyncio
import base64
import socket
from contextlib import suppress
from typing import Any

from rlt_pod.sandbox.files import get_file, list_files, put_file
from rlt_pod.sandbox.piped import PipedProgram
from rlt_pod.sandbox.policy_api import PolicyApi
from rlt_pod.sandbox.program import START_ERRORS, run_program
from rlt_pod.sandbox.protocol import HEADER, decode, encode, read_length


async def serve(connection: socket.socket, memory: int) -> None:
    """Answer requests until the driver closes the connection. `memory`: bytes for a process of a program.

    Raises OSError, ProtocolError.
    """
    reader, writer = await asyncio.open_connection(sock=connection)
    session = Session(writer, memory)
    with suppress(asyncio.IncompleteReadError):  # the end of the connection
        while True:
            length = read_length(await reader.readexactly(HEADER.size))
            session.receive(decode(await reader.readexactly(length)))


class Session:
    """A claim of this pod."""

    def __init__(self, writer: asyncio.StreamWriter, memory: int) -> None:
        self._writer = writer
        self._memory = memory
        self._sending = asyncio.Lock()
        self._api: PolicyApi | None = None
        self._piped: dict[str, PipedProgram] = {}
        self._stopped = asyncio.Event()
        self._answering: asyncio.Task[None] | None = None

    def receive(self, message: dict[str, Any]) -> None:
        """Process a frame."""
        if "response" in message and self._api:
            self._api.respond(message)
        elif "stop" in message:
            self._stopped.set()
        else:
            self._stopped = asyncio.Event()  # a stop that came after the end of the last program does not count
            self._answering = asyncio.create_task(self._answer(message, self._stopped))

    async def _answer(self, message: dict[str, Any], stopped: asyncio.Event) -> None:
        ((kind, given),) = message.items()
        if kind == "run":
            command = given.pop("command")
            answer = await run_program(command, **given, memory=self._memory, stopped=stopped)
        elif kind == "put":
            answer = {"problem": put_file(given["path"], base64.b64decode(given["content"]))}
        elif kind == "get":
            content = get_file(given["path"])
            answer = {"content": None if content is None else base64.b64encode(content).decode()}
        elif kind == "start":
            answer = {"problem": self._start(**given)}
        elif kind == "talk":
            answer = await self._talk(**given)
        elif kind == "list":
            answer = {"files": list_files()}
        else:
            self._api = PolicyApi(self._send, given["maxBody"])
            answer = {"port": await self._api.open()}
        await self._send({"answer": answer})

    def _start(self, name: str, command: list[str], variables: dict[str, str]) -> str:
        if name in self._piped:
            self._piped.pop(name).end()
        try:
            self._piped[name] = PipedProgram(command, variables, self._memory)
        except START_ERRORS as error:
            return f"the program did not start: {error}"
        return ""

    async def _talk(self, name: str, content: str, seconds: float) -> dict[str, Any]:
        program = self._piped.get(name)
        if program is None:
            return {"output": "", "left": 0, "problem": "it does not run"}
        return await program.talk(base64.b64decode(content), seconds)

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._sending:  # before Python 3.11, one task alone can wait for a writer
            self._writer.write(encode(message))
            await self._writer.drain()
