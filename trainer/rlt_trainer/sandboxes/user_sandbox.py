"""The sandbox of a conversation, as a user-defined function in another process gets it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rlt_pod.sandbox.protocol import MAX_FILE
from rlt_trainer.sandboxes.record import Result

if TYPE_CHECKING:  # each process of a reward would import asyncio: 7 MiB
    from rlt_trainer.sandboxes.sandbox import Sandbox

Exchange = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends a request to the driver, and returns the answer."""


class UserSandbox:
    """The pod of a conversation, for an agent or a reward: rollout.multiTurn.sandbox.

    Its calls run one after the other, also of several threads. A lost pod ends the function.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange: Exchange | None = exchange
        self._lock = threading.Lock()

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: str = "",
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a program in /work, and return its output, exit code and problem.

        It has `variables`, and a program of an agent also the variables for the policy's API. It ends after `timeout`
        seconds, in which an agent has no request for a turn in progress. Default: rollout.multiTurn.timeoutSeconds.
        """
        given = {"command": list(command), "stdin": stdin, "variables": dict(variables or {}), "timeout": timeout}
        return Result(**self._call({"run": given}))

    def put(self, path: str, content: str | bytes) -> None:
        """Write a file of at most 16 MiB and create its folders. A relative path begins in /work.

        Raises ValueError for a longer file, and OSError if it cannot be written, such as on a full disk.
        """
        data = content.encode() if isinstance(content, str) else content
        if len(data) > MAX_FILE:
            raise ValueError(f"{path} has {len(data)} bytes, more than {MAX_FILE}")
        answer = self._call({"put": {"path": path, "content": base64.b64encode(data).decode()}})
        if answer["problem"]:
            raise OSError(answer["problem"])

    def get(self, path: str) -> bytes | None:
        """Read a file of at most 16 MiB. None if it does not exist, is longer, or programs cannot read it."""
        content = self._call({"get": {"path": path}})["content"]
        return None if content is None else base64.b64decode(content)

    def close(self) -> None:
        """Wait for a call of another thread. Further calls raise RuntimeError."""
        with self._lock:
            self._exchange = None

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._exchange is None:
                raise RuntimeError("the call of the function that got this sandbox has ended")
            return self._exchange(request)


async def answer(sandbox: Sandbox, request: Mapping[str, Any], run: Callable[..., Awaitable[Result]]) -> dict[str, Any]:
    """Return the driver's answer to a request of UserSandbox. `run` has its parameters. Raises SandboxError."""
    ((kind, given),) = request.items()
    if kind == "put":
        return {"problem": await sandbox.put(**given)}
    if kind == "get":
        return {"content": await sandbox.get(**given)}
    return asdict(await run(**given))
