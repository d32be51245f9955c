"""One program in a sandbox: its limits, its output, and its end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

MAX_OUTPUT = 2**20
"""Maximum length of a program's output in bytes."""
POLL_S = 0.01
"""Interval between looks at a program and at its output."""
START_ERRORS = (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError)
"""What a program that does not start raises."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path of programs in an image without the variable PATH."""


async def run_program(
    command: Sequence[str], *, stdin: str, variables: Mapping[str, str], memory: int, stopped: asyncio.Event
) -> dict[str, Any]:
    """Run a program and return {"output", "exitCode", "problem"}.

    `output`: what it prints, up to MAX_OUTPUT. `problem`: how it was ended, or why it did not start; "" if it ended
    itself, with `exitCode`. `memory`: bytes that a process may write to (RLIMIT_DATA). A program can lift this limit:
    some reserve more than they use. The program's process group ends with it, or when `stopped` is set. Processes that
    left the group, and files, remain for the next program.
    """

    with os.fdopen(os.memfd_create("stdin"), "w+b") as given:  # also when the disk is full
        given.write(stdin.encode(errors="replace"))
        given.seek(0)
        try:
            process = start_process(command, variables, memory, stdin=given.fileno(), stderr=subprocess.STDOUT)
        except START_ERRORS as error:
            return {"output": "", "exitCode": None, "problem": f"the program did not start: {error}"}
    output = bytearray()
    try:
        problem = await _read_output(process, output, stopped)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    exit_code = process.wait()
    _reap_orphans()
    if not problem and exit_code < 0:
        problem = f"the program was ended by {name_signal(-exit_code)}"
    text = output.decode(errors="replace")
    return {"output": text, "exitCode": None if problem else exit_code, "problem": problem}


def start_process(
    command: Sequence[str], variables: Mapping[str, str], memory: int, *, stdin: int, stderr: int
) -> subprocess.Popen[bytes]:
    """Start a program in the folder of earlier ones. `memory`: as in run_program. Raises START_ERRORS."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    folder = tempfile.gettempdir()
    environment = {"PATH": os.environ.get("PATH", PATH), "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=folder,
        env={**environment, **variables},
        start_new_session=True,  # killpg then also ends the program's child processes
        preexec_fn=limit,
    )


async def _read_output(process: subprocess.Popen[bytes], output: bytearray, stopped: asyncio.Event) -> str:
    """Add to `output` until the program ends. Return why it must be ended, or ""."""
    assert process.stdout
    with process.stdout as source:
        os.set_blocking(source.fileno(), False)
        while True:
            ended = process.poll() is not None
            _read_available(source.fileno(), output)
            if len(output) > MAX_OUTPUT:
                del output[MAX_OUTPUT:]
                return "the output is too long"
            if ended:
                return ""
            if stopped.is_set():
                return "the program was stopped"
            _reap_orphans(keep=process.pid)
            await asyncio.sleep(POLL_S)


def _read_available(descriptor: int, output: bytearray) -> None:
    with suppress(BlockingIOError):
        while len(output) <= MAX_OUTPUT and (chunk := os.read(descriptor, 2**16)):
            output += chunk


def name_signal(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _reap_orphans(keep: int = 0) -> None:
    """Collect the ended processes that process 1 has inherited, but not `keep`."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, options)) and ended.si_pid != keep:
            os.waitpid(ended.si_pid, 0)
