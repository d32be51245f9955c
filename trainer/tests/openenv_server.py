"""A server of the tests with OpenEnv's protocol: `python openenv_server.py SESSIONS [TOKEN]` prints its port.

Its environment is a number to guess. The seed or the field `number` of a reset chooses it. Guesses that are not numbers
select what a hostile server does. Written from openenv 0.10.0's openenv/core/env_server/http_server.py.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

Message = dict[str, Any]
TEXT = "not an object"
HOSTILE: dict[str, Any] = {
    "invalid JSON": "{",
    "deep JSON": '{"a":' * 100_000,
    "binary": b"\xff\xfe\xfd",
    "huge": "x" * (5 * 2**20),
    "list": [1],
    "other type": {"type": "state", "data": {}},
    "observation of text": {"type": "observation", "data": {"observation": TEXT}},
    "reward of text": {"type": "observation", "data": {"observation": {"text": "a"}, "reward": "1"}},
    "huge reward": f'{{"type": "observation", "data": {{"observation": {{"text": "a"}}, "reward": {10**400}}}}}',
    "done of text": {"type": "observation", "data": {"observation": {"text": "a"}, "done": "no"}},
    "other field": {"type": "observation", "data": {"observation": {"words": "a"}}},
    "error of text": {"type": "error", "data": TEXT},
    "exception": {"type": "error", "data": {"message": "ZeroDivisionError", "code": "EXECUTION_ERROR"}},
}
"""A guess -> the answer to it that ends a conversation."""


def observe(text: str, reward: float | None = None, *, is_done: bool = False) -> Message:
    """Build an observation."""
    return {"type": "observation", "data": {"observation": {"text": text}, "reward": reward, "done": is_done}}


def reject(**fields: str) -> Message:
    """Build the error for an action that does not conform to the schema."""
    errors = [{"type": "value_error", "loc": [name], "msg": message} for name, message in fields.items()]
    return {"type": "error", "data": {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors}}


class Game:
    """One session."""

    def __init__(self) -> None:
        self.number = 0

    def reset(self, data: Message) -> Message:
        """Choose the number."""
        if data.get("task") == "invalid":
            return reject(task="unknown task")
        self.number = data["number"] if "number" in data else data["seed"]
        return observe(data.get("opening", ""), 99.0, is_done=data.get("task") == "done")

    async def step(self, data: Message, connection: ServerConnection) -> Message | str | bytes | None:
        """Answer a guess. None: no answer."""
        if set(data) != {"guess"}:
            return reject(**dict.fromkeys(data, "Extra inputs are not permitted") or {"guess": "Field required"})
        guess = str(data["guess"])
        if guess == "silence":
            return None
        if guess == "leave":
            await connection.close(1011, "internal error")
            return None
        if guess == "echo":
            return observe(str(connection.request and connection.request.headers.get("Authorization")))
        if guess == "surrogate":
            return '{"type": "observation", "data": {"observation": {"text": "\\ud800!"}}}'
        if guess == "long":
            return observe("a" * 10_000)
        if guess in HOSTILE:
            answer = HOSTILE[guess]
            return answer if isinstance(answer, (dict, str, bytes)) else json.dumps(answer)
        if not guess.isdigit():
            return reject(guess="Input should be a number")
        if int(guess) == self.number:
            return observe("correct", 1.0, is_done=True)
        return observe("higher" if int(guess) < self.number else "lower", -0.25)


class Server:
    """Sessions up to a limit, as openenv's max_concurrent_envs."""

    def __init__(self, sessions: int, token: str) -> None:
        self._free = sessions
        self._token = token

    async def authorize(self, connection: ServerConnection, request: Request) -> Response | None:
        """Reject connections without the token, and to other paths."""
        if request.path != "/ws":
            return connection.respond(404, "no such path")
        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            return connection.respond(401, "no token")
        return None

    async def serve(self, connection: ServerConnection) -> None:
        """Serve one connection."""
        if not self._free:
            full = {"message": "Server at capacity: all sessions active", "code": "CAPACITY_REACHED"}
            await connection.send(json.dumps({"type": "error", "data": full}))
            return
        self._free -= 1
        try:
            with suppress(ConnectionClosed):
                await self._play(connection, Game())
        finally:
            self._free += 1

    async def _play(self, connection: ServerConnection, game: Game) -> None:
        async for line in connection:
            message = json.loads(line)
            if message["type"] == "close":
                return
            data = message["data"]
            answer = game.reset(data) if message["type"] == "reset" else await game.step(data, connection)
            if answer is not None:
                await connection.send(json.dumps(answer) if isinstance(answer, dict) else answer)


async def main(sessions: int, token: str) -> None:
    """Serve until the process ends."""
    server = Server(sessions, token)
    async with serve(server.serve, "127.0.0.1", 0, process_request=server.authorize) as listening:
        print(next(iter(listening.sockets)).getsockname()[1], flush=True)
        await listening.serve_forever()


@contextmanager
def start_server(*, sessions: int = 64, token: str = "") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server. Yield its URL, and its process."""
    with start_program(sys.executable, __file__, str(sessions), token) as (port, process):
        yield f"http://127.0.0.1:{port}", process


@contextmanager
def start_program(*command: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server that prints its port. Yield the port, and its process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
