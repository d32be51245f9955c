"""rlt metrics: show the metrics of each step."""

from __future__ import annotations

from pathlib import Path

import click

from rlt.kube_context import KubeContext
from rlt.metric_text import build_metric_rows, draw_sparkline, find_page_metrics, format_number, list_values
from rlt.runs.directory import Step, read_run_directory
from rlt.runs.records import find_history
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, emit_table, output_option, print_message
from rlt_cli.run_arguments import find_directory


@click.command()
@click.argument("name", metavar="NAME | DIRECTORY | URL")
@click.argument("metrics", nargs=-1, metavar="[METRIC]...")
@click.option("--since", default=0, show_default=True, metavar="STEP", help="Show only steps after this one.")
@click.option("--plot", is_flag=True, help="Show each metric as a row of bars.")
@kube_context_options
@output_option()
def command(
    name: str, metrics: tuple[str, ...], since: int, plot: bool, kube_context: KubeContext, output: str
) -> None:
    """Show the metrics of a job or a run directory by step.

    URL is a run in a bucket: s3://BUCKET/PREFIX.
    METRIC is a metric name of verl. Without it, the command shows the metrics of the status page. After the end of the
    program they are from the record of the last 400 steps that the operator keeps, or from the volume.
    """
    directory = find_directory(name)
    history, notes = _read_directory(directory, since) if directory else run(_find(name, since, kube_context))
    for note in notes:
        print_message(f"note: {note}")
    names = list(metrics) or list(find_page_metrics(history).values())
    if not history:
        print_message("no steps yet")
    known = {key for step in history for key in step}
    if history and (unknown := [each for each in metrics if each not in known]):
        raise Failure(f"The job has no metric {unknown[0]}.", next=kube_context.command_line(f"metrics {name} -o json"))
    if output != TABLE:
        emit(
            history if not metrics else [{k: step[k] for k in ("step", *names) if k in step} for step in history],
            output,
        )
    elif not history:
        return
    elif plot:
        series = [(each, list_values(history, each)) for each in names]
        rows = [(name, format_number(v[0]), format_number(v[-1]), draw_sparkline(v)) for name, v in series if v]
        emit_table(("METRIC", "FIRST", "LAST", ""), rows)
    else:
        emit_table(("STEP", *names), build_metric_rows(history, names))


def _read_directory(path: Path, since: int) -> tuple[list[Step], list[str]]:
    """The metrics of a run directory after a step. Raises UnavailableError if it has no records."""
    return [step for step in read_run_directory(path).steps if (step["step"] or 0) > since], []


async def _find(name: str, since: int, kube_context: KubeContext) -> tuple[list[Step], list[str]]:
    async with connect(kube_context) as connection:
        return await find_history(connection, name, since)
