"""rlt run --local: run a job as a process on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from rlt.local_process import prepare_local_run, run_process
from rlt.program import program_name
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import file_argument
from rlt_cli.file_validation import load_valid_jobs
from rlt_cli.log_lines import PROGRAM, LogLines
from rlt_cli.output import TABLE, output_option, print_message
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
    own Ray instance. The steps of framework.prepare are not run. A second run of the same job resumes from its latest
    checkpoint. -o json prints one object per line of the program's output, as in `logs`.
    """
    if not local:
        message = "rlt run requires --local; use rlt submit for a cluster."
        raise Failure(message, next=f"{program_name()} submit {file}")
    validated = load_valid_jobs(file, runtimes, default_runtime)
    jobs = validated.jobs()
    if len(jobs) > 1:
        message = f"{file}: contains {len(jobs)} jobs; rlt run accepts one."
        raise Failure(message, next=f"{program_name()} render {file}")
    run = prepare_local_run(jobs[0], validated, directory)
    for name in run.secret_variables:
        print_message(f"note: {name} is set from a Secret or ConfigMap: its value is taken from this shell")
    for note in run.notes:
        print_message(f"note: {note}")
    print_message(f"run directory: {run.run_directory}")
    lines = None if output == TABLE else LogLines(PROGRAM, output)
    code = run_process(run, lines.write if lines else None, print_message)
    if lines:
        lines.end()
    context.exit(code)
