"""rlt rollouts: show the model's responses."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt.metric_text import format_number
from rlt.runs.bucket_copy import select_step
from rlt.runs.directory import read_rollouts, shorten
from rlt.runs.records import find_rollouts
from rlt.runs.rollouts import Rollout
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, output_option, print_message
from rlt_cli.pages.sandbox import format_sandbox
from rlt_cli.run_arguments import find_directory
from rlt_pod.report.extremes import select_rollouts


@click.command()
@click.argument("name", metavar="NAME | DIRECTORY | URL")
@click.option("--step", type=int, help="The step.  [default: the latest]")
@click.option("--best", type=int, metavar="K", help="Show only the K responses with the highest rewards.")
@click.option("--worst", type=int, metavar="K", help="Show only the K responses with the lowest rewards.")
@click.option("--sandbox", is_flag=True, help="Show the programs and files of each response's sandbox.")
@kube_context_options
@output_option()
def command(
    name: str,
    step: int | None,
    best: int | None,
    worst: int | None,
    sandbox: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Show prompts, responses and rewards of one step.

    URL is a run in a bucket: s3://BUCKET/PREFIX.
    "side" are an agent's side requests, which are not trained on.
    After the end of the job's program, these are the best and the worst responses of the latest step.
    """
    if directory := find_directory(name, select_step(name, step)):
        found, notes = read_rollouts(directory, step)
    else:
        _, found, notes = run(_find(name, step, kube_context))
    rollouts = select_rollouts(found, best=best, worst=worst)
    for note in notes:
        print_message(f"note: {note}")
    if output != TABLE:
        emit(rollouts, output)
        return
    for each in rollouts:
        click.echo(f"{_format_rewards(each)}   answer {each.get('ground_truth')}")
        click.echo(f"  prompt    {each.get('prompt')!r}")
        side = shorten(each).get("side_requests")
        for text in side if isinstance(side, list) else ():
            click.echo(f"  side      {text!r}")
        click.echo(f"  response  {each.get('response')!r}")
        if failure := each.get("failure"):
            click.echo(f"  failure   {failure}")
        if sandbox:
            for line in format_sandbox(each.get("sandbox")):
                click.echo(f"  {line}")


def _format_rewards(rollout: Rollout) -> str:
    """The total reward, and its parts if there are several."""
    by_name = rollout.get("rewards", {})
    parts = [f"{name} {format_number(value)}" for name, value in by_name.items()] if len(by_name) > 1 else []
    return "   ".join([f"reward {format_number(rollout.get('reward'))}", *parts])


async def _find(name: str, step: int | None, kube_context: KubeContext) -> tuple[int | None, list[Rollout], list[str]]:
    async with connect(kube_context) as connection:
        return await find_rollouts(connection, name, step)
