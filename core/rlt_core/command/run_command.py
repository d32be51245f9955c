"""Run a job's command as if it ran alone, and follow its progress by what it prints.

    python3 run_command.py [options] -- PROGRAM ARGUMENTS...

The output passes unchanged and at once. The exit code is the command's, 128 + N if signal N ended it, 127 if there is
no such program, 126 if it cannot be run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from types import FrameType

from rlt_api.driver_report import METRICS_PORT, PROGRESS_PREFIX
from rlt_core.command import console, server
from rlt_core.command.console import Progress

CHUNK = 65536
"""Bytes of a read: what a pipe holds (pipe(7)), so that one read takes everything that a process left in it."""
LONGEST_LINE = 2**18
"""Bytes. Of a longer line only the end is read for progress."""


class Follower:
    """Copies the output and keeps what it says. The server's threads read `progress`, a frozen value."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._line = b""
        self._failing = False

    def take(self, output: bytes) -> None:
        """One piece of the output, with any number of lines and parts of lines."""
        self._write(output)
        *lines, self._line = re.split(rb"[\r\n]", self._line + output)
        self._line = self._line[-LONGEST_LINE:]
        for line in lines:
            self._follow(line)

    def end(self, exit_code: int) -> None:
        """The output has ended: the report as the last line."""
        self._follow(self._line)
        if exit_code == 0:
            self.progress = console.finish(self.progress, time.time())
        said = console.report(self.progress)
        if said is not None:
            start = "\n" if self._line else ""
            self._write(f"{start}{PROGRESS_PREFIX}{json.dumps(said)}\n".encode())

    def _follow(self, line: bytes) -> None:
        self.progress = console.follow(self.progress, line.decode(errors="replace"), time.time())

    def _write(self, output: bytes) -> None:
        # A full disk behind standard output costs the output, never the training.
        try:
            while output:
                output = output[os.write(sys.stdout.fileno(), output) :]
        except OSError as error:
            if not self._failing:
                _tell(f"the output cannot be written and has gaps from here on: {error.strerror}")
            self._failing = True


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code."""
    options, command = _parse(arguments)
    given = options.total_steps is not None
    follower = Follower(Progress(time.time(), total_steps=options.total_steps, total_is_given=given))
    signalled = _wake_on_signals()
    _forward_signals()
    try:
        child = subprocess.Popen(
            command,
            cwd=options.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
    except OSError as error:
        _tell(f"{error.filename}: {error.strerror}")
        return 126 if isinstance(error, PermissionError) else 127
    try:
        server.serve(options.port, lambda: follower.progress, job=options.job, namespace=options.namespace)
    except OSError as error:
        _tell(f"no /progress and no /metrics, since port {options.port} cannot be had: {error.strerror}")
    _copy(child, signalled, follower)
    returned = child.wait()
    exit_code = returned if returned >= 0 else 128 - returned
    follower.end(exit_code)
    return exit_code


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", default="", help="label of the metrics: the RLTrainingJob")
    parser.add_argument("--namespace", default="", help="label of the metrics: its namespace")
    parser.add_argument("--port", type=int, default=METRICS_PORT, help="for /progress, /metrics and /healthz")
    parser.add_argument("--total-steps", type=int, help="steps in all (default: what the program says of them)")
    parser.add_argument("--working-directory", help="where the command runs")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    if not command:
        parser.error("no program is given after --")
    return options, command


def _wake_on_signals() -> int:
    """A file descriptor that can be read once a signal has come, SIGCHLD among them."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def _forward_signals() -> None:
    """SIGTERM and SIGINT go to the whole process group, and the command decides what comes of them.

    The command stays in this process's group: Ray kills that group when the process that started it has died.
    """
    if os.getpgrp() != os.getpid():
        os.setpgrp()

    def forward(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # this process is of the group, too
        os.killpg(0, number)
        signal.signal(number, forward)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)


def _copy(child: subprocess.Popen[bytes], signalled: int, follower: Follower) -> None:
    """Copy until the output ends, or the child does: what it left behind may hold the pipe open for ever."""
    assert child.stdout
    output = child.stdout.fileno()
    while True:
        ready = select.select([output, signalled], [], [])[0]
        if signalled in ready:
            os.read(signalled, CHUNK)
            if child.poll() is not None:
                if select.select([output], [], [], 0)[0]:
                    follower.take(os.read(output, CHUNK))
                return
        else:
            piece = os.read(output, CHUNK)
            if not piece:
                return
            follower.take(piece)


def _tell(message: str) -> None:
    print(f"run_command: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
