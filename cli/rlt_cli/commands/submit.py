"""rlt submit: submit jobs and runtimes to the cluster."""

from __future__ import annotations

import shlex
from dataclasses import replace

import click

from rlt.errors import FieldConflictError
from rlt.kube_context import KubeContext
from rlt_api.schema.crd import KIND
from rlt_cli.commands.wait import SUCCEEDED, wait_for_condition
from rlt_cli.commands.watch import watch
from rlt_cli.connection import connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import files_argument
from rlt_cli.file_validation import load_valid_submission
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, emit_item, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@files_argument
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
@click.option(
    "--dry-run", is_flag=True, help="Let the API server and the webhook process the files, and store nothing."
)
@click.option("--force-conflicts", is_flag=True, help="Overwrite fields that other field managers changed.")
@kube_context_options
@output_option()
def command(
    files: tuple[str, ...],
    watching: bool,
    wait: bool,
    timeout: Duration,
    dry_run: bool,
    force_conflicts: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Submit jobs and runtimes to the cluster.

    FILE contains RLTrainingJobs and RLRuntimes. They are validated first; if one is invalid, nothing is submitted. What
    the default runtime of the namespace may give is validated in the cluster. PersistentVolumeClaims that the jobs name
    are submitted as well. The command uses server-side apply.

    -o json prints the submitted objects. With --wait, it prints them after the jobs have ended. With --watch, it prints
    one per line, followed by the lines of `watch`.
    """
    if watching + wait + dry_run > 1:
        raise click.UsageError("--watch, --wait and --dry-run cannot be combined")
    manifests = load_valid_submission(files)
    objects = run(_submit(manifests, kube_context, files, force=force_conflicts, dry_run=dry_run))
    if output == TABLE:
        click.echo("\n".join(each["metadata"]["name"] for each in objects))
    elif watching:
        for each in objects:
            emit_item(each, output)
    elif not wait:
        emit(objects, output)
    if dry_run:
        print_message("dry run: nothing was stored")
        return
    code = 0
    for index, metadata in [(index, each["metadata"]) for index, each in enumerate(objects) if each["kind"] == KIND]:
        name = metadata["name"]
        job_context = replace(kube_context, namespace=metadata["namespace"])
        watch_command = job_context.command_line(f"watch {name}")
        detached = detached_message(watch_command)
        if watching:
            code = run(watch(name, job_context, output), detached=detached)
        elif wait:
            code, job = run(wait_for_condition(name, SUCCEEDED, timeout, job_context), detached=detached)
            objects[index] = job or objects[index]
        else:
            print_message(f"next: {watch_command}")
        if code:
            break
    if wait and output != TABLE:
        emit(objects, output)
    raise click.exceptions.Exit(code)


async def _submit(
    manifests: list[Manifest], kube_context: KubeContext, files: tuple[str, ...], *, force: bool, dry_run: bool
) -> list[Manifest]:
    async with connect(kube_context) as connection:
        objects = []
        for manifest in manifests:
            try:
                applied = await connection.apply(connection.with_namespace(manifest), force=force, dry_run=dry_run)
                objects.append(applied)
            except FieldConflictError as conflict:
                name = manifest["metadata"]["name"]
                message = f"{name}: other field managers changed fields that the file sets: {conflict.fields}."
                command_line = kube_context.command_line(f"submit {shlex.join(files)} --force-conflicts")
                raise Failure(message, next=command_line) from conflict
        return objects
