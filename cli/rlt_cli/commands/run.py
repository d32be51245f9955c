"""rlt run --local: run a job as a process on this machine."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from rlt_api.training_config import dump_config
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import file_argument
from rlt_cli.file_validation import load_valid_jobs
from rlt_cli.local_run import build_local_run
from rlt_cli.log_lines import PROGRAM, LogLines
from rlt_cli.offline_job import build_offline_job, compute_content_id
from rlt_cli.output import TABLE, output_option, print_message
from rlt_cli.program import program_name
from rlt_cli.runtime_options import runtime_options


@click.command()
@file_argument
@click.option("--local", is_flag=True, help="Run on this machine (required; use `rlt submit` for a cluster).")
@runtime_options
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default="out",
    show_default=True,
    help="The directory that replaces storage.mountPath.",
)
@output_option()
@click.pass_context
def command(
    context: click.Context,
    file: str,
    local: bool,
    runtimes: tuple[str, ...],
    default_runtime: str | None,
    directory: Path,
    output: str,
) -> None:
    """Run a job on this machine, without Kubernetes.

    FILE contains one job. Paths below storage.mountPath become paths below --directory. The builtin trainer starts its
    own Ray instance. A second run of the same job resumes from its latest checkpoint. -o json prints one object per
    line of the program's output, as in `logs`.
    """
    if not local:
        message = "rlt run requires --local; use rlt submit for a cluster."
        raise Failure(message, next=f"{program_name()} submit {file}")
    validated = load_valid_jobs(file, runtimes, default_runtime)
    jobs = validated.jobs()
    if len(jobs) > 1:
        message = f"{file}: contains {len(jobs)} jobs; rlt run accepts one."
        raise Failure(message, next=f"{program_name()} render {file}")
    job = build_offline_job(jobs[0], validated, uid=compute_content_id(jobs[0], validated))
    assert job.spec
    run = build_local_run(job, job.spec, directory.absolute())
    for name in run.secret_variables:
        print_message(f"note: {name} is set from a Secret or ConfigMap: its value is taken from this shell")
    if run.config and run.config_file:
        if importlib.util.find_spec("rlt_trainer") is None:
            message = "The package rlt-trainer is not installed in this Python environment."
            raise Failure(message, next="pip install rlt-trainer")
        run.config_file.parent.mkdir(parents=True, exist_ok=True)
        run.config_file.write_text(dump_config(run.config))
        print_message(f"run directory: {run.config_file.parent}")
    lines = None if output == TABLE else LogLines(PROGRAM, output)
    context.exit(run_process(run.command, {**os.environ, **run.environment}, lines))


def run_process(command: Sequence[str], environment: Mapping[str, str], lines: LogLines | None = None) -> int:
    """Run a process until it exits and forward SIGINT and SIGTERM to it.

    Its output goes to `lines`, or to the output of this program. Returns its exit code, or 128 + N after signal N.
    """
    # In its own process group it receives SIGINT once, from here, and not from the terminal.
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if lines else None,
        encoding="utf-8",
        errors="replace",
        process_group=0,
    )

    def forward(number: int, frame: FrameType | None) -> None:
        print_message("stopping: waiting for the program to exit")
        process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    if lines and process.stdout:
        for line in process.stdout:
            lines.write(line)
        lines.end()
    code = process.wait()
    for number, handler in previous.items():
        signal.signal(number, handler)
    return code if code >= 0 else 128 - code
