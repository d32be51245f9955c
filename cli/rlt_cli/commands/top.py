"""rlt top: show CPU, memory and GPU usage of a job's pods."""

from __future__ import annotations

import asyncio
import inspect
import sys

import click
from rich.live import Live
from rich.text import Text

from rlt.connection import Connection, is_head
from rlt.kube_context import KubeContext
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit_item, emit_result, get_width, output_option
from rlt_cli.pod_commands import PodCommandError, require_kubectl, run_in_pod
from rlt_cli.pod_usage import PodUsage, format_usage, parse_probe
from rlt_core.job import Manifest
from rlt_pod import probe as pod_probe

TIMEOUT_S = 20.0
"""Time for one pod: for a GPU tool, kubectl and Python."""
MAX_PODS_AT_ONCE = 16
"""Maximum number of calls of kubectl at the same time."""
WATCH_INTERVAL_S = 2.0
GROUP_LABEL = "ray.io/group"
"""KubeRay's label of the worker group (RayNodeGroupLabelKey)."""


@click.command()
@click.argument("name")
@click.option("-w", "--watch", is_flag=True, help="Repeat it until Ctrl-C.")
@kube_context_options
@output_option()
def command(name: str, watch: bool, kube_context: KubeContext, output: str) -> None:
    """Show CPU, memory and GPU usage of a job's pods.

    CPU in cores and memory come from the control group of the Ray container, with its limits. Memory is the working
    set, and contains /dev/shm. GPUs come from nvidia-smi or rocm-smi in the image: a GPU with used memory and no
    utilization is idle. A pod that does not answer has a reason. The command calls kubectl exec for each pod.
    """
    require_kubectl("rlt top")
    run(_show(name, watch, kube_context, output), detached="stopped; the job continues")


async def _show(name: str, watch: bool, kube_context: KubeContext, output: str) -> None:
    async with connect(kube_context) as connection:
        pods = await measure_pods(connection, name)
        if not watch:
            emit_result(format_usage(pods, get_width()), _to_json(pods), output)
            return
        with Live(auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                if output != TABLE:
                    emit_item(_to_json(pods), output)
                elif sys.stdout.isatty():
                    live.update(Text(format_usage(pods, get_width()), no_wrap=True, overflow="ellipsis"), refresh=True)
                else:
                    click.echo(format_usage(pods, get_width()))
                await asyncio.sleep(WATCH_INTERVAL_S)
                pods = await measure_pods(connection, name)


async def measure_pods(connection: Connection, name: str) -> list[PodUsage]:
    """The usage of each pod in a job, the head first. Raises Failure if the job does not exist or has no pods."""
    pods = await connection.list_pods(name)
    if not pods:
        await connection.get_job(name)  # raises Failure if the job does not exist
        raise Failure(f"Job {name} has no pods.", next=connection.kube_context.command_line(f"status {name}"))
    slots = asyncio.Semaphore(MAX_PODS_AT_ONCE)

    async def measure(pod: Manifest) -> PodUsage:
        async with slots:
            return await _measure_pod(pod, connection.kube_context)

    return list(await asyncio.gather(*map(measure, pods)))


async def _measure_pod(pod: Manifest, kube_context: KubeContext) -> PodUsage:
    name = pod["metadata"]["name"]
    labels = pod["metadata"].get("labels", {})
    group = "head" if is_head(pod) else labels.get(GROUP_LABEL, "")
    phase = pod.get("status", {}).get("phase", "Pending")
    if phase != "Running":
        return PodUsage(pod=name, group=group, reason=f"the pod is {phase}")
    try:
        arguments = ("python3", "-c", inspect.getsource(pod_probe))
        output = await run_in_pod(pod, arguments, kube_context, timeout_s=TIMEOUT_S)
    except PodCommandError as error:
        return PodUsage(pod=name, group=group, reason=str(error))
    return parse_probe(name, group, output)


def _to_json(pods: list[PodUsage]) -> list[dict[str, object]]:
    return [pod.to_json() for pod in pods]
