"""rlt run --local: a job in this machine's processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from rlt_cli.failure import Failure
from rlt_cli.local_run import local_run
from rlt_cli.log_lines import PROGRAM, LogLines
from rlt_cli.main import program
from rlt_cli.offline_job import content_id, offline_job
from rlt_cli.output import TABLE, output_option, say
from rlt_cli.readable_files import FILE, valid_jobs


@click.command()
@click.argument("file", type=FILE)
@click.option("--local", is_flag=True, help="On this machine. (Without it: rlt submit.)")
@click.option("--runtime", "runtimes", multiple=True, type=FILE, metavar="FILE", help="RLRuntimes that the job names.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default="out",
    show_default=True,
    help="What storage.mountPath is on this machine.",
)
@output_option()
@click.pass_context
def command(
    context: click.Context, file: str, local: bool, runtimes: tuple[str, ...], directory: Path, output: str
) -> None:
    """Run the job in FILE in this machine's processes, without Kubernetes.

    The spec is the same: paths below storage.mountPath lie below --directory, and the builtin trainer starts a Ray of
    its own. Run the same job again and it continues from its latest checkpoint. -o json is an object for each line that
    the program prints, as of `logs`.
    """
    if not local:
        raise Failure("run needs --local: only clusters have another way.", next=f"{program()} submit {file}")
    validated = valid_jobs(file, runtimes)
    jobs = validated.jobs()
    if len(jobs) > 1:
        raise Failure(f"{file}: {len(jobs)} jobs, and run takes one.", next=f"{program()} render {file}")
    uid = content_id(jobs[0], validated)
    job = offline_job(jobs[0], validated, uid=uid)
    assert job.spec
    run = local_run(job, job.spec, directory.absolute())
    for name in run.from_the_cluster:
        say(f"note: {name} is in the cluster: its value is taken from this shell")
    if run.config and run.config_file:
        if importlib.util.find_spec("rlt_trainer") is None:
            raise Failure("The trainer is not in this Python environment.", next="pip install rlt-trainer")
        run.config_file.parent.mkdir(parents=True, exist_ok=True)
        run.config_file.write_text(run.config.model_dump_json(by_alias=True, exclude_none=True, indent=2))
        say(f"run directory: {run.config_file.parent}")
    lines = None if output == TABLE else LogLines(PROGRAM, output)
    context.exit(run_process(run.command, {**os.environ, **run.environment}, lines))


def run_process(command: Sequence[str], environment: Mapping[str, str], lines: LogLines | None = None) -> int:
    """Run to the end; returns the exit code, 128 + N after signal N. SIGINT and SIGTERM are passed on.

    Its output is this program's, or goes to `lines`.
    """
    # In a group of its own it hears of Ctrl-C from here alone, and once.
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
        say("stopping: waiting for the program to end")
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    if lines and process.stdout:
        for line in process.stdout:
            lines.write(line)
        lines.end()
    returned = process.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    return returned if returned >= 0 else 128 - returned
