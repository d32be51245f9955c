"""rlt eval: evaluate checkpoints of a job on its suites, without training."""

from __future__ import annotations

import re

import click

from rlt.evaluations import submit_evaluation
from rlt.kube_context import KubeContext
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, YAML, emit, emit_result, output_option, print_message
from rlt_core.job import Manifest


def parse_step(text: str) -> str:
    """Parse a step. Raises BadParameter."""
    if not re.fullmatch(r"latest|0|[1-9][0-9]{0,8}", text):
        raise click.BadParameter(f"{text} is not the step of a checkpoint: use a number, 0 or latest.")
    return text


@click.command()
@click.argument("name")
@click.option(
    "--step",
    "steps",
    multiple=True,
    type=parse_step,
    default=("latest",),
    metavar="STEP",
    help="A checkpoint: its step, latest, or 0 for the model before the training. Repeatable.  [default: latest]",
)
@click.option(
    "--suite", "suites", multiple=True, metavar="SUITE", help="A suite of the job. Repeatable.  [default: all]"
)
@click.option("--name", "new_name", metavar="NEW", help="The name of the job to create.  [default: NAME-eval]")
@click.option("--dry-run", is_flag=True, help="Print the manifest of the job, and create nothing.")
@kube_context_options
@output_option()
def command(
    name: str,
    steps: tuple[str, ...],
    suites: tuple[str, ...],
    new_name: str | None,
    dry_run: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Evaluate checkpoints of a job on its suites, without training.

    The command creates an RLTrainingJob with spec.evaluateOnly: the model, the data, the rewards, the volume and the
    worker pods of NAME, whose engines alone run. With --step 0, the metrics have the differences to the model before
    the training. `rlt metrics`, `rlt compare` and the page show the results. Plain-text secrets are printed as ***.
    """
    job = run(_submit(name, steps, suites, new_name, kube_context, dry_run=dry_run))
    if dry_run:
        emit(job, YAML if output == TABLE else output)
        return
    created = job["metadata"]["name"]
    emit_result(f"{created} created: step {', '.join(steps)} of {name}", job, output)
    print_message(f"next: {kube_context.command_line(f'watch {created}')}")


async def _submit(
    name: str,
    steps: tuple[str, ...],
    suites: tuple[str, ...],
    new_name: str | None,
    kube_context: KubeContext,
    *,
    dry_run: bool,
) -> Manifest:
    async with connect(kube_context) as connection:
        return await submit_evaluation(connection, name, steps, suites, new_name=new_name, dry_run=dry_run)
