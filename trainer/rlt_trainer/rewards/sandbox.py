"""Calls of functions that may hang, crash or exhaust memory, in separate processes that are killed on timeout.

The sandbox protects the trainer's time, memory, process, standard output and secret environment variables. It is not a
security boundary: the function runs as the same user, with the same files and the same network.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

from rlt_trainer.rewards.outcome import Failure
from rlt_trainer.sandboxes.sandbox import SandboxError
from rlt_trainer.sandboxes.user_sandbox import Exchange

START_TIMEOUT_S = 60.0
"""Timeout for a process to load the function's module."""
MAX_MEMORY_BYTES = 4 * 2**30
"""Memory that one process may write to (RLIMIT_DATA)."""
INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""The trainer's environment variables that the function receives, in addition to PYTHONPATH."""


class Sandbox:
    """Calls one function, `module:function`, in a few processes that are reused between calls."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float,
        processes: int,
        memory_bytes: int = MAX_MEMORY_BYTES,
        path: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        returns: Literal["score", "text"] = "score",
    ) -> None:
        """`timeout_s` limits one call, and the time after each of its requests. `processes` is a maximum: a process
        starts when it is first needed. `path` lists folders to search for the module before PYTHONPATH. `variables` are
        additional environment variables. `returns`: the function is a reward, or a tool whose value is converted to
        text.
        """
        self._timeout_s = timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="rlt-sandbox-")
        module = "rlt_trainer.rewards.sandbox_worker"
        self._command = [sys.executable, "-P", "-m", module, target, str(timeout_s), str(memory_bytes), returns]
        self._environment = {**build_environment(path, self._folder.name), **(variables or {})}
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="rlt-sandbox")
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)

    def load(self) -> bool:
        """Load the function in one process. Return whether it is a reward with a parameter `sandbox`.

        Raises ValueError with the reason if that fails.
        """
        process = self._idle.get() or self._start()
        self._idle.put(process if process.is_usable else None)
        if process.load_error is not None:
            raise ValueError(process.load_error)
        return process.takes_sandbox

    async def call(self, arguments: Mapping[str, Any], exchange: Exchange | None = None) -> Any:
        """Call the function with keyword arguments, which are a JSON object. Wait for a process if all are busy.

        Return a Failure, or the value: an Outcome of a reward, a text of a tool. `exchange` is for the parameter
        `sandbox`. What it raises ends the process, and is a Failure.
        """
        return await asyncio.wrap_future(self._threads.submit(self._call, arguments, exchange))

    def close(self) -> None:
        """End all processes."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            process = self._idle.get()
            if process is not None:
                process.end()
        self._folder.cleanup()

    def _call(self, arguments: Mapping[str, Any], exchange: Exchange | None) -> Any:
        process = self._idle.get()
        try:
            if process is None:
                process = self._start()
            return process.call(arguments, self._timeout_s, exchange)
        finally:
            self._idle.put(process if process is not None and process.is_usable else None)

    def _start(self) -> _Process:
        return _Process(self._command, self._environment, self._folder.name)


class _Process:
    """One process with the function loaded, or with the error of loading it."""

    def __init__(self, command: list[str], variables: dict[str, str], folder: str) -> None:
        self._process = subprocess.Popen(
            command,
            env=variables,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
            start_new_session=True,  # killpg then also ends the function's child processes
        )
        self._is_killed = False
        self.takes_sandbox = False
        reply = self._exchange(None, START_TIMEOUT_S)
        self.load_error = None
        if isinstance(reply, Failure):
            self.load_error = f"its module could not be loaded: {reply.message}"
        elif "error" in reply:
            self.load_error = f"its module could not be loaded: {reply['error']}"
            self.end()
        else:
            self.takes_sandbox = reply["takes_sandbox"]

    @property
    def is_usable(self) -> bool:
        """Whether the process can be called again."""
        return not self._is_killed

    def call(self, arguments: Mapping[str, Any], timeout_s: float, exchange: Exchange | None) -> Any:
        if self.load_error is not None:
            return Failure("raised", self.load_error)
        reply = self._exchange(arguments, timeout_s)
        while not isinstance(reply, Failure) and "request" in reply:
            assert exchange is not None, "the job has a sandbox"
            try:
                answer = exchange(reply["request"])
            except Exception as error:
                self.end()
                if isinstance(error, SandboxError):
                    return Failure("environment", str(error))
                return Failure("raised", f"{type(error).__name__}: {error}")
            reply = self._exchange(answer, timeout_s)
        if isinstance(reply, Failure):
            return reply
        return reply["value"] if "value" in reply else Failure(**reply)

    def end(self) -> None:
        """End the process and its children, and close the pipes."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # close() flushes unsent data
                pipe.close()

    def _kill(self) -> None:
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _exchange(self, arguments: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any] | Failure:
        """Send the arguments, if any, and read the reply. The process is killed after `timeout_s`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(timeout_s, self._kill)
        timer.daemon = True
        timer.start()
        line = ""
        with suppress(BrokenPipeError):
            if arguments is not None:
                self._process.stdin.write(json.dumps(arguments, default=str) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        timer.cancel()
        timer.join()
        if line.endswith("\n"):
            reply: dict[str, Any] = json.loads(line)
            return reply
        is_timed_out = self._is_killed
        code = self._process.wait() if not is_timed_out else 0
        self.end()
        if is_timed_out:
            return Failure("timed_out", f"it did not end within {timeout_s:g} s")
        return Failure("crashed", f"its process exited with code {code}")


def build_environment(path: Sequence[str], folder: str) -> dict[str, str]:
    """Return the environment variables of a sandbox process: search paths and locale, no secrets."""
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    modules = [*path, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(modules),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": folder,
        "TMPDIR": folder,
    }
