"""rlt export: export a checkpoint of a job as a model in Hugging Face format."""

from __future__ import annotations

import click

from rlt.exports import export_checkpoint, get_export_path, publish_export
from rlt.kube_context import KubeContext
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, YAML, emit, emit_result, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@click.option("--step", type=click.IntRange(min=1), help="The step of the checkpoint.  [default: the latest]")
@click.option("--publish", is_flag=True, help="Publish the exported model to the places in spec.publish.")
@click.option("--dry-run", is_flag=True, help="Print the manifest of the Job, and create nothing.")
@kube_context_options
@output_option()
def command(name: str, step: int | None, publish: bool, dry_run: bool, kube_context: KubeContext, output: str) -> None:
    """Export a checkpoint of a job as a model in Hugging Face format.

    The checkpoint is read from the volume of the job, which may have ended, be suspended, or run. The model is written
    to exports/step-N in the run directory. The command creates a Kubernetes Job (batch/v1) with the image, the
    volume and the placement of the RLTrainingJob, and both are deleted together. Plain-text secrets are printed as ***.
    With --publish, the Job publishes the exported model where a publication of the job has failed.
    """
    if publish and step is not None:
        raise click.UsageError("--publish is about the exported model of the last step: use it without --step.")
    export_job = run(_export(name, step, kube_context, publish=publish, dry_run=dry_run))
    if dry_run:
        emit(export_job, YAML if output == TABLE else output)
        return
    created = export_job["metadata"]["name"]
    namespace = export_job["metadata"]["namespace"]
    emit_result(f"{created} created: {get_export_path(export_job)}", export_job, output)
    print_message(f"next: kubectl logs -f job/{created} -n {namespace}")


async def _export(name: str, step: int | None, kube_context: KubeContext, *, publish: bool, dry_run: bool) -> Manifest:
    async with connect(kube_context) as connection:
        if publish:
            return await publish_export(connection, name, dry_run=dry_run)
        return await export_checkpoint(connection, name, step, dry_run=dry_run)
