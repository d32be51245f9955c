"""rlt events: the events of a job, its RayCluster and its pods."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from rlt.connection import get_event_time
from rlt.kube_context import KubeContext
from rlt_cli.age import format_age
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, emit_table, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@click.option("--types", type=click.Choice(["Normal", "Warning"]), help="Show only events of this type.")
@kube_context_options
@output_option()
def command(name: str, types: str | None, kube_context: KubeContext, output: str) -> None:
    """Show the events of a job, its Ray cluster and its pods. The latest is last."""
    found = run(_list_events(name, kube_context))
    events = [each for each in reversed(found) if types in (None, each.get("type"))]
    if output != TABLE:
        emit(events, output)
    elif events:
        now = datetime.now(UTC)
        emit_table(("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"), [_row(each, now) for each in events])
    else:
        print_message(f"no events of {name}: the API server deletes them after an hour by default")


async def _list_events(name: str, kube_context: KubeContext) -> list[Manifest]:
    async with connect(kube_context) as connection:
        return await connection.list_all_events(name)


def _row(event: Manifest, now: datetime) -> tuple[object, ...]:
    involved = event["involvedObject"]
    message = " ".join(str(event.get("message") or "").split())
    where = f"{involved['kind'].lower()}/{involved['name']}"
    return format_age(get_event_time(event), now), event.get("type"), event.get("reason"), where, message
