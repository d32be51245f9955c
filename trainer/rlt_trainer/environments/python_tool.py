"""The tool python: runs a program of the policy in a new process with limits.

It is not a security boundary: the program runs as the same user, with the same files and the same network. It gets no
environment variables of the pod, such as API keys.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlt_pod.sandbox.program import name_signal
from rlt_trainer.environments.tool import build_schema
from rlt_trainer.rewards.sandbox import build_environment

MAX_MEMORY_BYTES = 2**30
"""Memory that a program may write to (RLIMIT_DATA)."""
MAX_FILE_BYTES = 2**20
"""Size of a file that a program may write, and of its output (RLIMIT_FSIZE)."""
MAX_PROCESSES = 32
"""Number of programs that run at the same time."""

RUN = f"""
import resource, sys
for limit, value in ((resource.RLIMIT_DATA, {MAX_MEMORY_BYTES}), (resource.RLIMIT_FSIZE, {MAX_FILE_BYTES}),
                     (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(limit, (value, value))
exec(compile(sys.stdin.buffer.read(), "<program>", "exec"), {{"__name__": "__main__"}})
"""


class PythonTool:
    """Runs programs. Their state is not kept."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` limits one program."""
        self.schema = build_schema(
            "python",
            "Run a Python program and return what it prints. Each call is a new process.",
            {"code": "The program."},
        )
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(MAX_PROCESSES, thread_name_prefix="python-tool")

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool."""
        code = arguments.get("code")
        if not isinstance(code, str):
            return 'error: python requires the text argument "code"'
        return await asyncio.wrap_future(self._threads.submit(self._run, code))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _run(self, code: str) -> str:
        with tempfile.TemporaryDirectory(prefix="rlt-python-", ignore_cleanup_errors=True) as folder:
            program = Path(folder, "program.py")
            output = Path(folder, "output.txt")
            program.write_text(code, errors="replace")
            with program.open("rb") as given, output.open("wb") as printed:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-u", "-c", RUN],
                    stdin=given,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    env=build_environment([], folder),
                    cwd=folder,
                    start_new_session=True,  # killpg then also ends the program's child processes
                )
            problem = ""
            try:
                process.wait(self._timeout_s)
            except subprocess.TimeoutExpired:
                problem = f"error: the program did not end within {self._timeout_s:g} s"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.wait() < 0 and not problem:
                problem = f"error: the program was ended by {name_signal(-process.returncode)}"
            if output.stat().st_size >= MAX_FILE_BYTES:
                problem = "error: the output is too long"
            return output.read_text(errors="replace") + problem
