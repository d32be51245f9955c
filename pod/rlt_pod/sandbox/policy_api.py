"""The policy's API in a sandbox: HTTP on the loopback interface, whose requests the driver answers.

A connection has one request. Its clients are the programs of the sandbox: a hostile one can disturb only them.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from rlt_pod.sandbox.protocol import MAX_REQUESTS

HOST = "127.0.0.1"
MAX_HEAD = 2**16
"""Maximum length of a request's first line and headers in bytes."""
MAX_CONNECTIONS = 64
"""Maximum number of connections. Further ones are closed."""
CHUNK = 2**16


class RejectedError(Exception):
    """A request that is not sent to the driver."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class PolicyApi:
    """Sends requests to the driver, and the driver's responses to the clients."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], max_body: int) -> None:
        self._send = send
        self._max_body = max_body
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._connections = 0

    async def open(self) -> int:
        """Listen, and return the port."""
        server = await asyncio.start_server(self._serve, HOST, 0, limit=MAX_HEAD)
        return int(server.sockets[0].getsockname()[1])

    def respond(self, response: dict[str, Any]) -> None:
        """Give a response of the driver to its client, if it waits."""
        waiting = self._waiting.get(response["response"])
        if waiting and not waiting.done():
            waiting.set_result(response)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                await self._respond(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            self._connections -= 1
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read_request(reader, writer, self._max_body)
        except RejectedError as error:
            problem = {"error": {"type": "invalid_request_error", "message": str(error)}}
            writer.write(format_response(error.status, "application/json", json.dumps(problem).encode()))
            writer.write_eof()
            await _await_end(reader)  # a client that still sends reads the response later
            return
        response = await self._forward(request, reader)
        body = base64.b64decode(response["body"])
        is_head = request["method"] == "HEAD"
        writer.write(format_response(response["status"], response["contentType"], body, is_head=is_head))
        await writer.drain()

    async def _forward(self, request: dict[str, Any], reader: asyncio.StreamReader) -> dict[str, Any]:
        async with self._slots:
            number = next(self._numbers)
            waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._waiting[number] = waiting
            disconnected = asyncio.ensure_future(_await_end(reader))
            try:
                await self._send({"request": number, **request})
                ends: list[asyncio.Future[Any]] = [waiting, disconnected]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    return waiting.result()
                await self._send({"cancel": number})
                raise ConnectionError("the client has disconnected")
            finally:
                disconnected.cancel()
                del self._waiting[number]


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_body: int) -> dict[str, Any]:
    """Read a request of HTTP/1.1. Raises RejectedError, OSError, asyncio.IncompleteReadError."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise RejectedError(status, f"The headers have more than {MAX_HEAD} bytes.") from None
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise RejectedError(HTTPStatus.BAD_REQUEST, f"{first[:80]!r} does not begin a request of HTTP/1.1.")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader, max_body)
    else:
        body = await _read_body(reader, headers.get("content-length", "0"), max_body)
    return {
        "method": words[0],
        "path": words[1].partition("?")[0],
        "keys": [headers.get("x-api-key", ""), headers.get("authorization", "")],
        "body": base64.b64encode(body).decode(),
    }


def format_response(status: int, content_type: str, body: bytes, *, is_head: bool = False) -> bytes:
    """Format a response of HTTP/1.1, the last one of its connection."""
    lines = (
        f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + (b"" if is_head else body)


async def _read_body(reader: asyncio.StreamReader, given: str, max_body: int) -> bytes:
    if not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise RejectedError(HTTPStatus.BAD_REQUEST, f"Content-Length {given[:20]!r} is not a length in bytes.")
    if int(given) > max_body:
        raise _reject_size(max_body)
    return await reader.readexactly(int(given))


async def _read_chunks(reader: asyncio.StreamReader, max_body: int) -> bytes:
    body = bytearray()
    size = 1
    try:
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            if size < 0:
                raise ValueError(f"its size is {size}")
            if len(body) + size > max_body:
                raise _reject_size(max_body)
            body += (await reader.readexactly(size + 2))[:-2]
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise RejectedError(HTTPStatus.BAD_REQUEST, f"A chunk is invalid: {error}.") from None
    return bytes(body)


def _reject_size(max_body: int) -> RejectedError:
    message = f"The body has more than {max_body} bytes. Send a shorter history."
    return RejectedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


async def _await_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(CHUNK):
            pass
    except OSError:
        pass
