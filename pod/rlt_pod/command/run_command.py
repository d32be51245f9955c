"""Run a job's program unchanged, keep its output in a file, and read the progress of a command from its output.

    python3 rlt_pod.pyz run-command [options] -- PROGRAM ARGUMENTS...

The output is copied unchanged and without delay. The exit code is the command's, 128 + N if signal N ended it,
127 if the program does not exist, 126 if it is not executable.
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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from rlt_pod.command import console, server
from rlt_pod.command.checkpoints import is_model, read_latest_step
from rlt_pod.command.console import Progress
from rlt_pod.command.history import History
from rlt_pod.command.log_file import LogFile
from rlt_pod.command.nccl_warnings import VARIABLE, read_nccl_warnings
from rlt_pod.command.records import Records
from rlt_pod.command.run_record import keep_record
from rlt_pod.report.driver_report import METRICS_PORT, PROGRESS_PREFIX
from rlt_pod.report.metric_rules import DEFAULTS, Limit

READ_BYTES = 65536
"""Bytes per read: the capacity of a pipe (pipe(7)), so that one read empties it."""
MAX_LINE_BYTES = 2**18
"""Only the end of a longer line is read for progress."""


class Output:
    """Standard output and a log file."""

    def __init__(self, log: LogFile | None) -> None:
        self._log = log
        self._write_failed = False

    def write(self, output: bytes) -> None:
        """Copy a chunk of the output. If standard output fails (a full disk), the training continues without output."""
        if self._log:
            self._log.write(output)
        try:
            while output:
                output = output[os.write(sys.stdout.fileno(), output) :]
        except OSError as error:
            if not self._write_failed:
                _log(f"cannot write the output, parts of it are lost: {error.strerror}")
            self._write_failed = True

    def close(self) -> None:
        """Write what is left to the log file."""
        if self._log:
            self._log.close()


class ProgressReader:
    """Copies the output and reads the progress from it. The server threads read `progress`, a frozen value."""

    def __init__(self, progress: Progress, output: Output, history: History | None) -> None:
        self.progress = progress
        self.history = history
        self._output = output
        self._line = b""

    def feed(self, output: bytes) -> None:
        """Copy and parse a chunk of the output: any number of lines and parts of lines."""
        self._output.write(output)
        *lines, self._line = re.split(rb"[\r\n]", self._line + output)
        self._line = self._line[-MAX_LINE_BYTES:]
        for line in lines:
            self._parse(line)

    def start_export(self, command: list[str]) -> list[str]:
        """Report the stage, and return the command for the latest checkpoint. Empty if there is none."""
        step = self._read_latest_step()
        if step is None:
            return []
        if self._line:
            self.feed(b"\n")
        self.progress = console.start_export(self.progress, time.time())
        return [word.replace("{step}", str(step)) for word in command]

    def end(self, exit_code: int, export_directory: str | None) -> None:
        """Print the report as the last line, after the end of the output."""
        self._parse(self._line)
        if self.history:
            self.history.close()
        self.progress = replace(self.progress, checkpoint_step=self._read_latest_step())
        if exit_code == 0:
            exported = export_directory if export_directory and is_model(export_directory) else None
            self.progress = console.finish(self.progress, time.time(), exported)
        report = console.build_report(self.progress)
        if report is not None:
            start = "\n" if self._line else ""
            self._output.write(f"{start}{PROGRESS_PREFIX}{json.dumps(report)}\n".encode())

    def _read_latest_step(self) -> int | None:
        directory = self.progress.checkpoint_directory
        return read_latest_step(directory) if directory else None

    def _parse(self, line: bytes) -> None:
        before = self.progress
        after = console.update(before, line.decode(errors="replace"), time.time())
        if after.checkpoint_directory and after.updated != before.updated:  # verl prints a step after its checkpoint
            after = replace(after, checkpoint_step=read_latest_step(after.checkpoint_directory))
        self.progress = after
        if self.history:
            self.history.record(before, after)


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    options, command = _parse(arguments)
    output = Output(LogFile(options.log, options.log_endpoint) if options.log else None)
    total_is_given = options.total_steps is not None
    progress = Progress(
        time.time(),
        total_steps=options.total_steps,
        total_is_given=total_is_given,
        checkpoint_directory=options.checkpoints,
        limits={rule: Limit(*limit) for rule, limit in options.metric_rules.items()},
    )
    history = History(options.run_directory) if options.run_directory and options.progress else None
    reader = ProgressReader(progress, output, history) if options.progress else None
    feed = reader.feed if reader else output.write
    signal_fd = _wake_on_signals()
    _forward_signals()
    if reader:
        _serve(reader, options)
    exit_code = _run(command, options.working_directory, signal_fd, feed)
    if exit_code and (nccl_log := os.environ.get(VARIABLE)):
        output.write(read_nccl_warnings(nccl_log))
    if exit_code == 0 and reader and options.export and (export := reader.start_export(options.export)):
        exit_code = _run(export, None, signal_fd, feed)
    if reader:
        reader.end(exit_code, options.export_directory)
    if options.run_directory:
        keep_record(Path(options.run_directory), Path(options.verl_rollouts) if options.verl_rollouts else None)
    output.close()
    return exit_code


def _run(command: list[str], directory: str | None, signal_fd: int, feed: Callable[[bytes], None]) -> int:
    """Run a command to its end and return its exit code."""
    try:
        child = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
    except OSError as error:
        _log(f"{error.filename}: {error.strerror}")
        return 126 if isinstance(error, PermissionError) else 127
    _copy_output(child, signal_fd, feed)
    returned = child.wait()
    return returned if returned >= 0 else 128 - returned


def _serve(reader: ProgressReader, options: argparse.Namespace) -> None:
    records = Records(options.run_directory, options.verl_rollouts) if options.run_directory else None
    try:
        server.serve(options.port, lambda: reader.progress, records, job=options.job, namespace=options.namespace)
    except OSError as error:
        _log(f"no /progress and no /metrics, because port {options.port} is not available: {error.strerror}")


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", default="", help="label of the metrics: the RLTrainingJob")
    parser.add_argument("--namespace", default="", help="label of the metrics: its namespace")
    parser.add_argument("--port", type=int, default=METRICS_PORT, help="port of the server (server.py)")
    parser.add_argument("--total-steps", type=int, help="total number of steps (default: from the output)")
    parser.add_argument("--working-directory", help="working directory of the command")
    parser.add_argument(
        "--metric-rules",
        type=json.loads,
        default=DEFAULTS,
        help="rules over the metrics as JSON: name -> [threshold, steps] (default: all rules)",
    )
    parser.add_argument(
        "--checkpoints", help="folder of verl's, OpenRLHF's or ROLL's checkpoints, to report the latest"
    )
    parser.add_argument(
        "--export",
        type=json.loads,
        default=[],
        help="command as JSON that runs after exit code 0 and writes the model of the latest checkpoint, {step}",
    )
    parser.add_argument("--export-directory", help="folder of the model in Hugging Face format, to report it")
    parser.add_argument("--log", help="file or URL s3://BUCKET/PATH for the output, in addition to standard output")
    parser.add_argument("--log-endpoint", help="URL of the bucket's server (default: Amazon's S3)")
    parser.add_argument("--run-directory", help="folder of the run, whose metrics are kept and served")
    parser.add_argument("--verl-rollouts", help="folder of verl's responses (trainer.rollout_data_dir), to serve them")
    parser.add_argument(
        "--no-progress", dest="progress", action="store_false", help="the program reports its progress by itself"
    )
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    command = arguments[end + 1 :]
    if not command:
        parser.error("a program is required after --")
    return options, command


def _wake_on_signals() -> int:
    """Return a file descriptor that becomes readable on any signal, also on SIGCHLD."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def _forward_signals() -> None:
    """Forward SIGTERM and SIGINT to the process group. The command handles them.

    The command stays in the process group of this process: Ray kills that group when its starter has died.
    """
    if os.getpgrp() != os.getpid():
        os.setpgrp()

    def forward(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # this process belongs to the group
        os.killpg(0, number)
        signal.signal(number, forward)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)


def _copy_output(child: subprocess.Popen[bytes], signal_fd: int, feed: Callable[[bytes], None]) -> None:
    """Copy until the output or the child ends: processes that the child started can keep the pipe open."""
    assert child.stdout
    output = child.stdout.fileno()
    while True:
        ready = select.select([output, signal_fd], [], [])[0]
        if signal_fd in ready:
            os.read(signal_fd, READ_BYTES)
            if child.poll() is not None:
                if select.select([output], [], [], 0)[0]:
                    feed(os.read(output, READ_BYTES))
                return
        else:
            chunk = os.read(output, READ_BYTES)
            if not chunk:
                return
            feed(chunk)


def _log(message: str) -> None:
    print(f"run_command: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
