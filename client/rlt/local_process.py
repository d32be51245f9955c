"""The process of a local run: its config is written, and it runs until it exits."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from rlt.errors import UnavailableError
from rlt.local_run import LocalRun, build_local_run
from rlt.offline_job import build_offline_job, compute_content_id
from rlt.validation import ValidatedFiles
from rlt_api.spec.training_config import dump_config
from rlt_core.earlier_job import reject_earlier_job


def prepare_local_run(manifest: Mapping[str, Any], files: ValidatedFiles, directory: Path) -> LocalRun:
    """Build the process of a valid job, and write the trainer's config. `files` contains the job and its runtime.

    Raises UnavailableError if the trainer is not installed, and for checkpoint.resumeFromJob.
    """
    job = build_offline_job(manifest, files, uid=compute_content_id(manifest, files))
    assert job.spec
    try:
        reject_earlier_job(job.spec)
    except ValueError as error:
        raise UnavailableError(f"{error}.", next="ls DIRECTORY/runs/*/checkpoints") from error
    run = build_local_run(job, job.spec, directory.absolute())
    if run.config and run.config_file:
        if importlib.util.find_spec("rlt_trainer") is None:
            message = "The package rlt-trainer is not installed in this Python environment."
            raise UnavailableError(message, next="pip install ./pod ./api ./trainer    # in a clone of rlt")
        run.config_file.parent.mkdir(parents=True, exist_ok=True)
        run.config_file.write_text(dump_config(run.config))
    return run


def run_process(run: LocalRun, write: Callable[[str], None] | None, notify: Callable[[str], None]) -> int:
    """Run the process until it exits and forward SIGINT and SIGTERM to it, if this is the main thread.

    Its lines go to `write`, or to the output of this program. Returns its exit code, or 128 + N after signal N.
    """
    # In its own process group it receives SIGINT once, from here, and not from the terminal.
    process = subprocess.Popen(
        run.command,
        env={**os.environ, **run.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if write else None,
        encoding="utf-8",
        errors="replace",
        process_group=0,
    )

    def forward(number: int, frame: FrameType | None) -> None:
        notify("stopping: waiting for the program to exit")
        process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.signal(number, forward) for number in numbers}
    try:
        if write and process.stdout:
            for line in process.stdout:
                write(line)
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
