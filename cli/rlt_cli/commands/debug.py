"""rlt debug: attach a debugger to a breakpoint of a job."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict

import click

from rlt.connection import Connection
from rlt.kube_context import KubeContext
from rlt.pods import find_pod
from rlt.program import program_name
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_cli.breakpoints import (
    TASKS,
    WORKERS,
    Breakpoint,
    build_launch_configuration,
    format_breakpoints,
    parse_breakpoints,
)
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit_result, get_width, output_option, print_message
from rlt_cli.pod_commands import build_command, require_kubectl
from rlt_cli.tunnel import build_relay, open_tunnel
from rlt_core.job import Manifest, parse_job
from rlt_core.names import DASHBOARD_PORT

PORT = 5678
"""debugpy's usual port."""


@click.command()
@click.argument("name")
@click.argument("breakpoint", required=False, metavar="[ID]")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=PORT,
    show_default=True,
    help="The port on this machine. 0 selects a free one.",
)
@kube_context_options
@output_option()
def command(name: str, breakpoint: str | None, port: int, kube_context: KubeContext, output: str) -> None:
    """Attach a debugger to a breakpoint of a job.

    Without ID this lists the processes that wait for a debugger: at breakpoint() in a Ray task or actor, or after an
    error. With ID, the start of one in the list, it forwards a port to that process until Ctrl-C, and prints the
    configuration for VS Code's launch.json. The job needs spec.observability.debugger: ray. With legacy, the command
    runs `ray debug` in the head pod. It calls kubectl exec.
    """
    require_kubectl("rlt debug")
    legacy = run(_debug(name, breakpoint, port, kube_context, output), detached="detached; the job continues")
    if legacy:
        os.execvp(legacy[0], legacy)


async def _debug(name: str, id: str | None, port: int, kube_context: KubeContext, output: str) -> list[str] | None:
    """List or attach. With the legacy debugger, return the command to run instead."""
    async with connect(kube_context) as connection:
        spec = _parse_spec(await connection.get_job(name), kube_context)
        if spec.observability.debugger == "none":
            message = f"spec.observability.debugger of job {name} is none: create a job with `debugger: ray`."
            raise Failure(message, next=f"{program_name()} explain observability.debugger")
        if spec.observability.debugger == "legacy":
            head = await find_pod(connection, name, None, None)
            return build_command(head, ("ray", "debug"), kube_context, stdin=True, terminal=sys.stdin.isatty())
        found = await list_breakpoints(connection, name)
        if id is None:
            _print_breakpoints(name, found, kube_context, output)
        else:
            await _attach(connection, name, choose_breakpoint(name, found, id, kube_context), port, spec)
    return None


async def list_breakpoints(connection: Connection, name: str) -> list[Breakpoint]:
    """The processes of a job that wait for a debugger. Raises Failure if the head does not answer."""
    workers = await connection.get_from_head(name, DASHBOARD_PORT, WORKERS)
    tasks = await connection.get_from_head(name, DASHBOARD_PORT, TASKS)
    return parse_breakpoints(workers, tasks, await connection.list_pods(name))


def _parse_spec(job: Manifest, kube_context: KubeContext) -> RLTrainingJobSpec:
    spec = parse_job(job).spec
    if spec is None:
        name = job["metadata"]["name"]
        raise Failure(f"The spec of job {name} is invalid.", next=kube_context.command_line(f"status {name}"))
    return spec


def _print_breakpoints(name: str, found: list[Breakpoint], kube_context: KubeContext, output: str) -> None:
    if found or output != TABLE:
        emit_result(format_breakpoints(found, get_width()), [asdict(each) for each in found], output)
    if found:
        print_message(f"attach: {kube_context.command_line(f'debug {name} {found[0].id}')}")
    else:
        print_message(f"no process of job {name} waits for a debugger")


def choose_breakpoint(name: str, found: list[Breakpoint], id: str, kube_context: KubeContext) -> Breakpoint:
    """The breakpoint whose ID starts with `id`. Raises Failure if none or several do."""
    matching = [each for each in found if each.id.startswith(id)]
    if len(matching) != 1:
        ids = ", ".join(each.id for each in found) or "none"
        raise Failure(
            f"{len(matching)} waiting processes of job {name} have an ID that starts with {id}. All IDs: {ids}.",
            next=kube_context.command_line(f"debug {name}"),
        )
    return matching[0]


async def _attach(connection: Connection, name: str, at: Breakpoint, port: int, spec: RLTrainingJobSpec) -> None:
    """Forward the port until Ctrl-C."""
    head = await find_pod(connection, name, None, None)
    call = build_command(head, build_relay(at.ip, at.port), connection.kube_context, stdin=True)
    try:
        async with open_tunnel(call, port) as local_port:
            root = spec.framework.working_directory or "."
            configuration = build_launch_configuration(f"{name}: {at.task}", local_port, root)
            click.echo(json.dumps(configuration, indent=2))
            print_message(
                f"{at.task} in pod {at.pod} waits at 127.0.0.1:{local_port} (Ctrl-C ends the connection). Add the "
                "configuration to .vscode/launch.json and start it. remoteRoot is the folder of the code in the pod."
            )
            await asyncio.Event().wait()
    except OSError as error:
        retry = connection.kube_context.command_line(f"debug {name} {at.id} --port 0")
        raise Failure(f"--port {port}: {error.strerror or error}.", next=retry) from error
