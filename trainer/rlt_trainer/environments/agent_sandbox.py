"""The sandbox of an episode, as the function of an agent gets it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlt_pod.sandbox.protocol import MAX_FILE
from rlt_trainer.sandboxes.sandbox import Result


class AgentSandbox:
    """A pod that belongs to this call of the function: rollout.multiTurn.sandbox.

    Its calls run one after the other, also of several threads. A lost pod ends the function.
    """

    def __init__(self, exchange: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """`exchange` sends a request to the driver and returns the answer."""
        self._exchange = exchange
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

        It has the variables of an agent, with which it reaches the policy, and `variables`. It ends after `timeout`
        seconds without a request for a turn in progress. Default: rollout.multiTurn.timeoutSeconds.
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

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            return self._exchange(request)
