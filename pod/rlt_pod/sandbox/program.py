"""One program in a sandbox: its limits, its output, and its end."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

MAX_OUTPUT = 2**20
"""Maximum length of a program's output in bytes."""
POLL_S = 0.01
"""Interval between looks at a program that has closed its output, or whose children keep it open."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_program(
    command: Sequence[str], *, stdin: str, timeout_s: float, memory: int, connection: socket.socket
) -> dict[str, str] | None:
    """Run a program and return {"output", "problem"}; None if the client closes the connection before its end.

    `output`: what it prints, up to MAX_OUTPUT. `problem`: how it was ended, or why it did not start; "" if it ended
    itself. `memory`: bytes that a process may write to (RLIMIT_DATA). The program's process group ends with it.
    Processes that left the group, and files, remain for the next program.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    folder = tempfile.gettempdir()
    with os.fdopen(os.memfd_create("stdin"), "w+b") as given:  # also when the disk is full
        given.write(stdin.encode(errors="replace"))
        given.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={"PATH": PATH, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"},
                start_new_session=True,  # killpg then also ends the program's child processes
                preexec_fn=limit,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"output": "", "problem": f"the program did not start: {error}"}
    assert process.stdout
    output = bytearray()
    problem = _read_output(process, process.stdout, output, timeout_s, connection)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    ended_itself = process.returncode is not None
    process.wait()
    _reap_orphans()
    if problem is None:
        return None
    if ended_itself and process.returncode < 0:
        problem = f"the program was ended by {_name_signal(-process.returncode)}"
    return {"output": output.decode(errors="replace"), "problem": problem}


def _read_output(
    process: subprocess.Popen[bytes], source: IO[bytes], output: bytearray, timeout_s: float, connection: socket.socket
) -> str | None:
    """Add to `output` until the program ends. Returns why it must be ended, or ""; None without a client."""
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        selector.register(connection, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return f"the program did not end within {timeout_s:g} s"
            ended = process.poll() is not None
            ready = selector.select(0 if ended else min(left, POLL_S))
            if any(key.fileobj is connection for key, _ in ready):
                return None  # a client sends nothing before the answer: it has closed the connection
            if ended and not ready:
                return ""
            for key, _ in ready:
                chunk = os.read(key.fd, 2**16)
                output += chunk
                if not chunk:
                    selector.unregister(key.fileobj)
            if len(output) > MAX_OUTPUT:
                del output[MAX_OUTPUT:]
                return "the output is too long"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _reap_orphans() -> None:
    """Collect the ended processes that process 1 has inherited."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
