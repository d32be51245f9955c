"""rlt rollouts: what the model said."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from rlt_api.driver_report import METRICS_PORT
from rlt_cli.connection import connected, run
from rlt_cli.job_page import number
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option


@click.command()
@click.argument("name")
@click.option("--step", type=int, help="Of this step.  [default: the latest]")
@click.option("--best", type=int, metavar="K", help="Only the K with the highest rewards.")
@click.option("--worst", type=int, metavar="K", help="Only the K with the lowest rewards.")
@kube_context_options
@output_option()
def command(
    name: str,
    step: int | None,
    best: int | None,
    worst: int | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Show prompts, responses and rewards of one step of the job NAME."""
    text = run(_rollouts(name, step, KubeContext(namespace, context, kubeconfig)))
    chosen = choose([json.loads(line) for line in text.splitlines()], best=best, worst=worst)
    if output != TABLE:
        emit(chosen, output)
        return
    for each in chosen:
        click.echo(f"{_scores(each)}   answer {each['ground_truth']}")
        click.echo(f"  prompt    {each['prompt']!r}")
        click.echo(f"  response  {each['response']!r}")


def choose(rollouts: list[dict[str, Any]], *, best: int | None, worst: int | None) -> list[dict[str, Any]]:
    """The best and the worst ones, or all in their order."""
    if best is None and worst is None:
        return rollouts
    ordered = sorted(rollouts, key=_reward, reverse=True)
    kept = ordered[: best or 0]
    return kept + (ordered[max(len(kept), len(ordered) - worst) :] if worst else [])


def _scores(rollout: dict[str, Any]) -> str:
    """The reward, and where it is made of several, these."""
    by_name = rollout.get("rewards", {})
    parts = [f"{name} {number(value)}" for name, value in by_name.items()] if len(by_name) > 1 else []
    return "   ".join([f"reward {number(rollout['reward'])}", *parts])


def _reward(rollout: dict[str, Any]) -> float:
    """What is not finite is JSON's null, and the worst."""
    return -math.inf if rollout["reward"] is None else float(rollout["reward"])


async def _rollouts(name: str, step: int | None, place: KubeContext) -> str:
    query = f"?step={step}" if step is not None else ""
    async with connected(place) as connection:
        return await connection.head(name, METRICS_PORT, f"/rollouts{query}")
