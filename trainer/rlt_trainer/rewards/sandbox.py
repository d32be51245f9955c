"""Functions that may hang, crash or eat memory, each called in a process of its own that is ended when time is up.

What it keeps away from the training: time, memory, crashes, standard output, and the environment's secrets. It is no
jail: the function runs as the same user, with the same files and the same network.
"""

from __future__ import annotations

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
from typing import Any

from rlt_trainer.rewards.outcome import Failure, Outcome

START_SECONDS = 60.0
"""Time for a process to load the function's module."""
MEMORY_BYTES = 4 * 2**30
"""Memory that one process may write to (RLIMIT_DATA)."""
PROCESSES = min(4, len(os.sched_getaffinity(0)))
"""Of one sandbox. They start when they are needed."""
HOPELESS = 16
"""So many calls may be too late at the beginning of a batch before it is given up."""
INHERITED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""The only environment variables that the function sees of the trainer's, PYTHONPATH aside."""


class Sandbox:
    """Calls one function, `module:function`, in a few processes that live from call to call."""

    def __init__(
        self,
        target: str,
        *,
        seconds: float,
        processes: int = PROCESSES,
        memory_bytes: int = MEMORY_BYTES,
        path: Sequence[str] = (),
    ) -> None:
        """`seconds` is the limit of one call; `path` are folders to look for the module in, before PYTHONPATH's."""
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="rlt-sandbox-")
        module = "rlt_trainer.rewards.sandbox_worker"
        self._command = [sys.executable, "-P", "-m", module, target, str(seconds), str(memory_bytes)]
        self._environment = environment(path, self._folder.name)
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="rlt-sandbox")
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)

    def check(self) -> None:
        """Load the function once. Raises ValueError with the reason when that fails."""
        process = self._idle.get() or self._start()
        self._idle.put(process if process.is_usable else None)
        if process.refusal is not None:
            raise ValueError(process.refusal)

    def map(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """One outcome for each call, in order. A call is the function's keyword arguments, as JSON has them.

        When the first HOPELESS calls are all too late, the others are not made: a batch would take hours to fail.
        """
        late, in_time = 0, 0

        def call(arguments: Mapping[str, Any]) -> Outcome:
            nonlocal late, in_time
            if late >= HOPELESS and not in_time:
                return Failure("timed_out", f"it was not called, as {late} calls before did not end in time")
            result = self._call(arguments)
            if isinstance(result, Failure) and result.reason == "timed_out":
                late += 1
            else:
                in_time += 1
            return result

        return list(self._threads.map(call, calls))

    def close(self) -> None:
        """End all processes."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            process = self._idle.get()
            if process is not None:
                process.end()
        self._folder.cleanup()

    def _call(self, arguments: Mapping[str, Any]) -> Outcome:
        process = self._idle.get()
        try:
            if process is None:
                process = self._start()
            return process.call(arguments, self._seconds)
        finally:
            self._idle.put(process if process is not None and process.is_usable else None)

    def _start(self) -> _Process:
        return _Process(self._command, self._environment, self._folder.name)


class _Process:
    """One process with the function loaded, or with the reason why it is not."""

    def __init__(self, command: list[str], variables: dict[str, str], folder: str) -> None:
        self._process = subprocess.Popen(
            command,
            env=variables,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
            start_new_session=True,  # so that its own children end with it
        )
        self._is_killed = False
        reply, self.refusal = self._exchange(None, START_SECONDS), None
        if isinstance(reply, Failure):
            self.refusal = f"its module could not be loaded: {reply.message}"
        elif "refused" in reply:
            self.refusal = f"its module could not be loaded: {reply['refused']}"
            self.end()

    @property
    def is_usable(self) -> bool:
        """Whether it can be called again."""
        return not self._is_killed

    def call(self, arguments: Mapping[str, Any], seconds: float) -> Outcome:
        if self.refusal is not None:
            return Failure("raised", self.refusal)
        reply = self._exchange(arguments, seconds)
        if isinstance(reply, Failure):
            return reply
        return reply["score"] if "score" in reply else Failure(**reply)

    def end(self) -> None:
        """End the process and its children, and close the pipes."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # of what was not sent yet
                pipe.close()

    def _kill(self) -> None:
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _exchange(self, arguments: Mapping[str, Any] | None, seconds: float) -> dict[str, Any] | Failure:
        """Send the arguments, if any, and read the answer. The process is killed when `seconds` are over."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._kill)
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
        is_late = self._is_killed
        code = self._process.wait() if not is_late else 0
        self.end()
        if is_late:
            return Failure("timed_out", f"it did not end within {seconds:g} s")
        return Failure("crashed", f"its process ended with code {code}")


def environment(path: Sequence[str], folder: str) -> dict[str, str]:
    """The environment of a sandbox process: where programs and modules are, and nothing that is anyone's secret."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    modules = [*path, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(modules),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": folder,
        "TMPDIR": folder,
    }
