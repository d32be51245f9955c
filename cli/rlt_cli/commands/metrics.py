"""rlt metrics: the numbers of each step."""

from __future__ import annotations

import json

import click

from rlt_api.driver_report import METRICS_PORT
from rlt_cli.connection import connected, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import metric_rows, number, shown, sparkline
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, emit_table, output_option, say


@click.command()
@click.argument("name")
@click.argument("metrics", nargs=-1, metavar="[METRIC]...")
@click.option("--since", default=0, show_default=True, metavar="STEP", help="Only later steps.")
@click.option("--plot", is_flag=True, help="A line of bars for each metric instead of numbers.")
@kube_context_options
@output_option()
def command(
    name: str,
    metrics: tuple[str, ...],
    since: int,
    plot: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Show the metrics of each step of the job NAME, under verl's names; a few of them unless METRIC says which.

    They are asked of the running job. Once it has ended they lie in its volume.
    """
    place = KubeContext(namespace, context, kubeconfig)
    history = [json.loads(line) for line in run(_history(name, since, place)).splitlines()]
    names = list(metrics) or list(shown(history).values())
    if not history:
        say("no steps yet")
    known = {key for step in history for key in step}
    if history and (unknown := [each for each in metrics if each not in known]):
        raise Failure(f"There is no metric {unknown[0]}.", next=place.rlt(f"metrics {name} -o json"))
    if output != TABLE:
        emit(
            history if not metrics else [{k: step[k] for k in ("step", *names) if k in step} for step in history],
            output,
        )
    elif not history:
        return
    elif plot:
        series = [(each, [step[each] for step in history if each in step]) for each in names]
        emit_table(
            ("METRIC", "FIRST", "LAST", ""), [(n, number(v[0]), number(v[-1]), sparkline(v)) for n, v in series if v]
        )
    else:
        emit_table(("STEP", *names), metric_rows(history, names))


async def _history(name: str, since: int, place: KubeContext) -> str:
    async with connected(place) as connection:
        return await connection.head(name, METRICS_PORT, f"/history?since={since}")
