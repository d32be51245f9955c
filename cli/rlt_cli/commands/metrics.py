"""rlt metrics: show the metrics of each step."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt.metric_text import build_metric_rows, draw_sparkline, find_page_metrics, format_number, list_values
from rlt.runs.records import Step, get_history
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, emit_table, output_option, print_message


@click.command()
@click.argument("name")
@click.argument("metrics", nargs=-1, metavar="[METRIC]...")
@click.option("--since", default=0, show_default=True, metavar="STEP", help="Show only steps after this one.")
@click.option("--plot", is_flag=True, help="Show each metric as a row of bars.")
@kube_context_options
@output_option()
def command(
    name: str, metrics: tuple[str, ...], since: int, plot: bool, kube_context: KubeContext, output: str
) -> None:
    """Show a job's metrics by step.

    METRIC is a metric name of verl. Without it, the command shows the metrics of the status page. It reads them from
    the running job; after the job ends they are in its volume.
    """
    history = run(_get_history(name, since, kube_context))
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


async def _get_history(name: str, since: int, kube_context: KubeContext) -> list[Step]:
    async with connect(kube_context) as connection:
        return await get_history(connection, name, since)
