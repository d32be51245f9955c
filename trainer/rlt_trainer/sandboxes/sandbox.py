"""One claimed sandbox pod: a connection to its server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from rlt_pod.sandbox.protocol import HEADER, MAX_READ, MAX_REQUESTS, ProtocolError, decode, encode, prove, read_length
from rlt_trainer.sandboxes.api_call import ApiCall, Respond
from rlt_trainer.sandboxes.record import ProgramLog, Result, read_files

CONNECT_TIMEOUT_S = 2.0
"""Time for a connection and the answer to a claim."""
ANSWER_TIMEOUT_S = 30.0
"""Time for an answer, of a program after its timeout. The server may wait for a CPU."""

Address = tuple[str, int]
"""IP address and port."""
Limit = Callable[[float], AbstractAsyncContextManager[Any]]
"""Raises TimeoutError within it after a number of seconds, such as asyncio.timeout."""


class SandboxError(Exception):
    """A sandbox pod was lost, or none became ready. The programs of the policy may have caused it, or not."""


class Sandbox:
    """A claimed pod. It belongs to this connection, and ends with it.

    Its calls run one after the other. They raise SandboxError if the pod is lost.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: str) -> None:
        self.pod = pod
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[dict[str, Any] | None] | None = None
        """None: the pod was lost."""
        self.lost: SandboxError | None = None
        """Why the connection has ended, if it has."""
        self._programs = ProgramLog()
        self._respond: Respond | None = None
        self._max_body = 0
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._responding = asyncio.Lock()
        self._cancellations = 0
        """How many the pod may send: one for each request."""
        self._receiving = asyncio.create_task(self._receive())

    async def run(
        self,
        command: Sequence[str],
        *,
        stdin: str = "",
        variables: Mapping[str, str] | None = None,
        timeout_s: float,
        limit: Limit = asyncio.timeout,
    ) -> Result:
        """Run a program in the folder of earlier ones. `limit` ends it by `timeout_s`."""
        given = {"command": list(command), "stdin": stdin, "variables": dict(variables or {})}
        async with self._turn():
            answering = self._send_request({"run": given})
            problem = None
            try:
                async with limit(timeout_s):
                    await asyncio.wait([answering])
            except TimeoutError:
                problem = f"the program did not end within {timeout_s:g} s"
                self._send({"stop": True})
            answer = await self._await(answering)
        if problem is None or not answer.get("problem"):
            problem = str(answer.get("problem", ""))
        exit_code = answer.get("exitCode")
        result = Result(str(answer.get("output", "")), problem, exit_code if isinstance(exit_code, int) else None)
        self._programs.add(command, result.output, result.exit_code, result.problem)
        return result

    async def put(self, path: str, content: str) -> str:
        """Write a file, up to 16 MiB. Return a problem, or "". `content`: Base64."""
        return str((await self._call({"put": {"path": path, "content": content}})).get("problem", ""))

    async def get(self, path: str) -> str | None:
        """Read a file, up to 16 MiB, as Base64. None without such a file."""
        content = (await self._call({"get": {"path": path}})).get("content")
        return None if content is None else str(content)

    async def start(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> str:
        """Start a program that runs on, instead of an earlier one of this name. Return a problem, or ""."""
        given = {"name": name, "command": list(command), "variables": dict(variables)}
        return str((await self._call({"start": given})).get("problem", ""))

    async def talk(self, name: str, content: bytes, seconds: float) -> tuple[bytes, int, str]:
        """Write to a program of `start` until it prints something, at most for `seconds`.

        Return what it has printed, how many bytes it has not read, and a problem if it has ended, else "".
        """
        given = {"name": name, "content": base64.b64encode(content).decode(), "seconds": seconds}
        answer = await self._call({"talk": given})
        left = answer.get("left")
        try:
            output = base64.b64decode(str(answer.get("output", "")), validate=True)
        except ValueError:
            left = None
        if not isinstance(left, int) or not 0 <= left <= len(content) or len(output) > MAX_READ:
            self._lose(self._describe_loss("it sent something else than the output of a program"))
            assert self.lost
            raise self.lost
        return output, left, str(answer.get("problem", ""))

    async def describe(self) -> dict[str, Any]:
        """Return its programs, and its files or why it was lost, for the line of its rollout."""
        described = {"pod": self.pod, **self._programs.describe()}
        try:
            return {**described, "files": read_files(await self._call({"list": {}}))}
        except SandboxError as error:
            return {**described, "end": str(error)}

    async def open_api(self, respond: Respond, max_body: int) -> int:
        """Respond to the programs' requests for the policy's API. Return its port on their loopback interface.

        `max_body`: bytes of a request.
        """
        self._respond = respond
        self._max_body = max_body
        port = (await self._call({"openApi": {"maxBody": max_body}})).get("port")
        if not isinstance(port, int):
            raise self._describe_loss("it did not open a port")
        return port

    def release(self) -> None:
        """End the pod with everything in it."""
        self._lose(SandboxError(f"sandbox pod {self.pod} was released"))
        self._receiving.cancel()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._lock:
            try:
                yield
            except asyncio.CancelledError:  # the next call would get the answer of this one
                self.release()
                raise

    async def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        async with self._turn():
            return await self._await(self._send_request(message))

    async def _await(self, answering: asyncio.Future[dict[str, Any] | None]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await answering
        except TimeoutError:
            answer = None
            self._lose(self._describe_loss(f"no answer within {ANSWER_TIMEOUT_S:g} s"))
        if answer is None:
            assert self.lost
            raise self.lost
        return answer

    def _send_request(self, message: dict[str, Any]) -> asyncio.Future[dict[str, Any] | None]:
        self._answer = asyncio.get_running_loop().create_future()
        if self.lost:
            self._answer.set_result(None)
        self._send(message)
        return self._answer

    def _send(self, message: dict[str, Any]) -> None:
        if not self.lost:
            self._writer.write(encode(message))

    async def _receive(self) -> None:
        try:
            while True:
                self._process(await _read(self._reader))
        except (OSError, EOFError, ProtocolError) as error:
            self._lose(self._describe_loss(f"{type(error).__name__}: {error}"))

    def _process(self, message: dict[str, Any]) -> None:
        """Process a frame of the pod. Raises ProtocolError."""
        answer = message.get("answer")
        if isinstance(answer, dict) and self._answer and not self._answer.done():
            self._answer.set_result(answer)
        elif "request" in message and self._respond:
            self._begin_request(message, self._respond)
        elif "cancel" in message and self._cancellations:
            self._cancellations -= 1
            if request := self._requests.pop(_read_number(message["cancel"]), None):
                request.cancel()
        else:
            raise ProtocolError("an unexpected frame")

    def _begin_request(self, message: dict[str, Any], respond: Respond) -> None:
        number = _read_number(message["request"])
        keys = message.get("keys")
        try:
            body = base64.b64decode(str(message.get("body", "")), validate=True)
        except ValueError as error:
            raise ProtocolError("a body that is not Base64") from error
        in_progress = len(self._requests)
        # The pod can have a response, and send the next request, before its task here ends.
        if number in self._requests or in_progress >= 2 * MAX_REQUESTS or len(body) > self._max_body:
            raise ProtocolError("a request beyond the limits")
        if not isinstance(keys, list):
            raise ProtocolError("a request without keys")

        async def read_body() -> bytes:
            return body

        method = str(message.get("method", ""))[:16]
        call = ApiCall(method, str(message.get("path", ""))[:1024], tuple(str(key) for key in keys[:2]), read_body)
        self._cancellations += 1
        self._requests[number] = asyncio.create_task(self._serve_request(number, call, respond))

    async def _serve_request(self, number: int, call: ApiCall, respond: Respond) -> None:
        response = await respond(call)
        body = base64.b64encode(response.body).decode()
        content_type = response.content_type
        message = {"response": number, "status": response.status, "contentType": content_type, "body": body}
        # Without the lock, drain could wait for later responses, while the pod sends further requests for earlier ones.
        async with self._responding:
            self._send(message)
            with suppress(OSError):  # the pod was lost
                await self._writer.drain()
            self._requests.pop(number, None)

    def _describe_loss(self, reason: str) -> SandboxError:
        return SandboxError(f"sandbox pod {self.pod} was lost: {reason}")

    def _lose(self, reason: SandboxError) -> None:
        if self.lost:
            return
        self.lost = reason
        self._writer.transport.abort()  # what was not sent is discarded: a hostile pod may not read
        for request in self._requests.values():
            request.cancel()
        if self._answer and not self._answer.done():
            self._answer.set_result(None)


async def claim_at(address: Address, key: str) -> Sandbox | None:
    """Claim the pod at the address; None if it is used, has ended, or does not accept the key."""
    writer = None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*address)
            nonce = (await _read(reader)).get("nonce")
            writer.write(encode({"proof": prove(key, str(nonce))}))
            answer = await _read(reader)
    except (OSError, EOFError, TimeoutError, ProtocolError):
        if writer:
            writer.close()
        return None
    except asyncio.CancelledError:
        if writer:
            writer.close()
        raise
    return Sandbox(reader, writer, str(answer.get("pod", address[0])))


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    length = read_length(await reader.readexactly(HEADER.size))
    return decode(await reader.readexactly(length))


def _read_number(value: Any) -> int:
    if not isinstance(value, int):
        raise ProtocolError("a request without a number")
    return value
