"""rlt compare: show what differs between runs."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt.report.comparison import compare_runs
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option
from rlt_cli.pages.comparison import choose_labels, format_comparison
from rlt_cli.run_arguments import load_runs

MAX_RUNS = 8


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--reward", type=float, metavar="R", help="Show the steps until this reward.  [default: the worst run's best]"
)
@kube_context_options
@output_option()
def command(runs: tuple[str, ...], reward: float | None, kube_context: KubeContext, output: str) -> None:
    """Compare the configuration and the metrics of runs.

    RUN is a run directory, a run in a bucket (s3://BUCKET/PREFIX) or the name of a job. The metrics of a job whose
    program does not run are read from its volume by a pod, which ends after some seconds. Differences are those to the
    first run. Suites of spec.evaluation have paired differences with 95% intervals.
    """
    if not 2 <= len(runs) <= MAX_RUNS:
        raise click.UsageError(f"pass 2 to {MAX_RUNS} runs")
    comparison = compare_runs(load_runs(runs, kube_context), reward)
    if output != TABLE:
        emit(comparison.to_json(), output)
    else:
        click.echo(format_comparison(comparison, choose_labels(runs), get_width()))
