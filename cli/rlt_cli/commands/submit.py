"""rlt submit: submit jobs and runtimes to the cluster."""

from __future__ import annotations

import shlex
from dataclasses import replace

import click

from rlt_api.crd import KIND
from rlt_api.runtime_policy import RuntimePolicy
from rlt_cli.commands.wait import wait_for_condition
from rlt_cli.commands.watch import watch
from rlt_cli.connection import FieldConflictError, connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.failure import Failure
from rlt_cli.file_validation import FILE, load_valid_files
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, emit_item, output_option, print_message
from rlt_cli.program import program_name
from rlt_core.job import Manifest


@click.command()
@click.argument("files", nargs=-1, type=FILE, required=True, metavar="FILE...")
@click.option("--watch", "watching", is_flag=True, help="Follow the job until it ends; exit codes as in `watch`.")
@click.option("--wait", is_flag=True, help="Wait until the job ends; exit codes as in `wait`.")
@click.option(
    "--timeout",
    type=parse_duration,
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="The timeout of --wait, such as 30m or 1h30m.",
)
@click.option("--force-conflicts", is_flag=True, help="Overwrite fields that other field managers changed.")
@kube_context_options
@output_option()
def command(
    files: tuple[str, ...],
    watching: bool,
    wait: bool,
    timeout: Duration,
    force_conflicts: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Submit jobs and runtimes to the cluster.

    FILE contains RLTrainingJobs and RLRuntimes. They are validated first; if one is invalid, nothing is submitted. What
    the default runtime of the namespace may give is validated in the cluster. The command uses server-side apply.

    -o json prints the submitted objects. With --wait, it prints them after the jobs have ended. With --watch, it prints
    one per line, followed by the lines of `watch`.
    """
    if watching and wait:
        raise click.UsageError("--watch cannot be combined with --wait")
    validated = load_valid_files(files, RuntimePolicy(unknown=True))
    manifests = [dict(document.manifest) for document in validated.documents]
    objects = run(_submit(manifests, kube_context, files, force=force_conflicts))
    if output == TABLE:
        click.echo("\n".join(each["metadata"]["name"] for each in objects))
    elif watching:
        for each in objects:
            emit_item(each, output)
    elif not wait:
        emit(objects, output)
    code = 0
    for index, metadata in [(index, each["metadata"]) for index, each in enumerate(objects) if each["kind"] == KIND]:
        name, job_context = metadata["name"], replace(kube_context, namespace=metadata["namespace"])
        watch_command = job_context.command_line(f"watch {name}")
        detached = detached_message(watch_command)
        if watching:
            code = run(watch(name, job_context, output), detached=detached)
        elif wait:
            code, job = run(wait_for_condition(name, "Succeeded", timeout, job_context), detached=detached)
            objects[index] = job or objects[index]
        else:
            print_message(f"next: {watch_command}")
        if code:
            break
    if wait and output != TABLE:
        emit(objects, output)
    raise click.exceptions.Exit(code)


async def _submit(
    manifests: list[Manifest], kube_context: KubeContext, files: tuple[str, ...], *, force: bool
) -> list[Manifest]:
    async with connect(kube_context) as connection:
        objects = []
        for manifest in sorted(manifests, key=lambda each: each["kind"] == KIND):  # runtimes first
            metadata = dict(manifest["metadata"])
            if manifest["kind"] == KIND:
                namespace = metadata.setdefault("namespace", connection.namespace)
                if kube_context.namespace and namespace != kube_context.namespace:
                    raise Failure(
                        f"{metadata['name']}: metadata.namespace: {namespace} does not match "
                        f"--namespace {kube_context.namespace}.",
                        next=f"{program_name()} submit --namespace {namespace} FILE",
                    )
            try:
                objects.append(await connection.apply({**manifest, "metadata": metadata}, force=force))
            except FieldConflictError as conflict:
                message = f"{metadata['name']}: other field managers changed fields that the file sets: {conflict}."
                command_line = kube_context.command_line(f"submit {shlex.join(files)} --force-conflicts")
                raise Failure(message, next=command_line) from conflict
        return objects
