"""A program that runs on between requests, such as an MCP server: the driver writes to it and reads what it prints."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlt_pod.sandbox.program import POLL_S, start_process
from rlt_pod.sandbox.protocol import MAX_READ

MAX_ERRORS = 500
"""Number of bytes of its standard error that are kept: the last ones."""


class PipedProgram:
    """A running program. It ends with the pod, or with `end`."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], memory: int) -> None:
        """Raises START_ERRORS."""
        self._process = start_process(command, variables, memory, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self._errors = b""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream
            os.set_blocking(stream.fileno(), False)

    async def talk(self, content: bytes, seconds: float) -> dict[str, Any]:
        """Write to it until it has printed something or ended, or for `seconds`.

        Return {"output", "left", "problem"}. `left`: number of bytes that it has not read. `problem`: "" while it runs
        or has printed something.
        """
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        end = time.monotonic() + seconds
        while True:
            has_ended = self._process.poll() is not None
            content = content[_write(self._process.stdin.fileno(), content) :]
            output = _read(self._process.stdout.fileno())
            self._errors = (self._errors + _read(self._process.stderr.fileno()))[-MAX_ERRORS:]
            if output or has_ended or time.monotonic() >= end:
                break
            await asyncio.sleep(POLL_S)
        problem = f"it has ended. {self._errors.decode(errors='replace').strip()}" if has_ended and not output else ""
        return {"output": base64.b64encode(output).decode(), "left": len(content), "problem": problem}

    def end(self) -> None:
        """End it with its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with self._process:  # closes the pipes, and waits
            pass


def _write(descriptor: int, content: bytes) -> int:
    """Write what fits, and return the number of bytes. The end of the reader counts as all."""
    try:
        return os.write(descriptor, content) if content else 0
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(content)


def _read(descriptor: int) -> bytes:
    with suppress(BlockingIOError):
        return os.read(descriptor, MAX_READ)
    return b""
