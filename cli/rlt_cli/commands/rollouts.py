"""rlt rollouts: show the model's responses."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from rlt_api.driver_report import METRICS_PORT
from rlt_cli.connection import connect, run
from rlt_cli.job_page import format_number
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option


@click.command()
@click.argument("name")
@click.option("--step", type=int, help="The step.  [default: the latest]")
@click.option("--best", type=int, metavar="K", help="Show only the K responses with the highest rewards.")
@click.option("--worst", type=int, metavar="K", help="Show only the K responses with the lowest rewards.")
@kube_context_options
@output_option()
def command(
    name: str, step: int | None, best: int | None, worst: int | None, kube_context: KubeContext, output: str
) -> None:
    """Show prompts, responses and rewards of one step of a job."""
    text = run(_get_rollouts(name, step, kube_context))
    rollouts = select([json.loads(line) for line in text.splitlines()], best=best, worst=worst)
    if output != TABLE:
        emit(rollouts, output)
        return
    for each in rollouts:
        click.echo(f"{_format_rewards(each)}   answer {each['ground_truth']}")
        click.echo(f"  prompt    {each['prompt']!r}")
        click.echo(f"  response  {each['response']!r}")


def select(rollouts: list[dict[str, Any]], *, best: int | None, worst: int | None) -> list[dict[str, Any]]:
    """The best and the worst rollouts by reward, or all rollouts in their order."""
    if best is None and worst is None:
        return rollouts
    ordered = sorted(rollouts, key=_reward, reverse=True)
    selected = ordered[: best or 0]
    return selected + (ordered[max(len(selected), len(ordered) - worst) :] if worst else [])


def _format_rewards(rollout: dict[str, Any]) -> str:
    """The total reward, and its parts if there are several."""
    by_name = rollout.get("rewards", {})
    parts = [f"{name} {format_number(value)}" for name, value in by_name.items()] if len(by_name) > 1 else []
    return "   ".join([f"reward {format_number(rollout['reward'])}", *parts])


def _reward(rollout: dict[str, Any]) -> float:
    """The reward to sort by. null in JSON is NaN or infinite and sorts as the worst."""
    return -math.inf if rollout["reward"] is None else float(rollout["reward"])


async def _get_rollouts(name: str, step: int | None, kube_context: KubeContext) -> str:
    query = f"?step={step}" if step is not None else ""
    async with connect(kube_context) as connection:
        return await connection.get_from_head(name, METRICS_PORT, f"/rollouts{query}")
