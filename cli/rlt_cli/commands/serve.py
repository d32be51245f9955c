"""rlt serve: print the manifests of a vLLM server for the model of a job."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt.serving import render_model_server
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import YAML, emit_manifests, output_option
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@click.option("--render", is_flag=True, required=True, help="Print the manifests. (rlt creates no server itself.)")
@click.option("--adapter", is_flag=True, help="Serve the base model with the LoRA adapter, instead of merged weights.")
@click.option("--image", metavar="IMAGE", help="An image with vLLM.  [default: the job's]")
@click.option("--unpromoted", is_flag=True, help="Also if a suite of the job does not pass its promoteIf.")
@kube_context_options
@output_option(default=YAML)
def command(
    name: str,
    render: bool,
    adapter: bool,
    image: str | None,
    unpromoted: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Print the manifests of a vLLM server for the model of a job.

    They are a Deployment and a Service NAME-model with an OpenAI-compatible API on port 8000, in which the model has
    the name of the job: `rlt serve NAME --render | kubectl apply -f -`. The server loads the exported model from the
    volume of the job, or from the hub or a registry if it is published there. It has the accelerators that an engine of
    the job had.
    """
    del render  # without it, click rejects the command
    emit_manifests(run(_render(name, kube_context, adapter=adapter, image=image, unpromoted=unpromoted)), output)


async def _render(
    name: str, kube_context: KubeContext, *, adapter: bool, image: str | None, unpromoted: bool
) -> list[Manifest]:
    async with connect(kube_context) as connection:
        return await render_model_server(connection, name, adapter=adapter, image=image, unpromoted=unpromoted)
