"""rlt exec: run a command in a pod of a job."""

from __future__ import annotations

import os
import sys

import click

from rlt.kube_context import KubeContext
from rlt.pods import find_pod
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.pod_commands import build_command, require_kubectl
from rlt_core.job import Manifest


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--pod", metavar="POD", help="Run the command in this pod.  [default: the head]")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Run the command in worker pod N, from 0.")
@kube_context_options
def command(
    name: str, arguments: tuple[str, ...], pod: str | None, worker: int | None, kube_context: KubeContext
) -> None:
    """Run a command in a pod of a job.

    The command runs in the Ray container of the head pod, or of --pod or --worker, and has a terminal if standard input
    is one. Examples: `rlt exec NAME -- ray status`, `rlt exec NAME --worker 0 -- nvidia-smi`. It calls kubectl.
    """
    if pod is not None and worker is not None:
        raise click.UsageError("--pod and --worker are mutually exclusive")
    require_kubectl("rlt exec")
    manifest = run(_find(name, pod, worker, kube_context))
    call = build_command(manifest, arguments, kube_context, stdin=True, terminal=sys.stdin.isatty())
    os.execvp(call[0], call)


async def _find(name: str, pod: str | None, worker: int | None, kube_context: KubeContext) -> Manifest:
    async with connect(kube_context) as connection:
        return await find_pod(connection, name, pod, worker)
