"""rlt exec: run a command in a pod of a job."""

from __future__ import annotations

import os
import shutil
import sys

import click

from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.pods import find_pod
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
    if shutil.which("kubectl") is None:
        raise Failure("kubectl is not on the PATH, and rlt exec calls it.", next="kubectl version --client")
    manifest, namespace = run(_find(name, pod, worker, kube_context))
    os.execvp("kubectl", build_command(manifest, namespace, arguments, kube_context, terminal=sys.stdin.isatty()))


def build_command(
    pod: Manifest, namespace: str, arguments: tuple[str, ...], kube_context: KubeContext, *, terminal: bool
) -> list[str]:
    """Build the call of kubectl."""
    options = {"--kubeconfig": kube_context.kubeconfig, "--context": kube_context.context, "--namespace": namespace}
    given = [word for option, value in options.items() if value for word in (option, value)]
    container = pod["spec"]["containers"][0]["name"]  # the Ray container in KubeRay's pods
    flags = ["--stdin", *(["--tty"] if terminal else [])]
    return ["kubectl", "exec", *given, *flags, pod["metadata"]["name"], "--container", container, "--", *arguments]


async def _find(name: str, pod: str | None, worker: int | None, kube_context: KubeContext) -> tuple[Manifest, str]:
    async with connect(kube_context) as connection:
        return await find_pod(connection, name, pod, worker), connection.namespace
