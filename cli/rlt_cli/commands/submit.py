"""rlt submit: jobs and runtimes from files to the cluster."""

from __future__ import annotations

import shlex

import click

from rlt_api.crd import KIND
from rlt_cli.commands.wait import EXIT_FAILED, follow
from rlt_cli.commands.watch import watch
from rlt_cli.connection import FieldConflictError, connected, run
from rlt_cli.duration import Duration, duration
from rlt_cli.failure import Failure
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.main import program
from rlt_cli.output import TABLE, emit, emit_next, output_option, say
from rlt_cli.readable_files import FILE, read_and_validate
from rlt_core.job import Manifest


@click.command()
@click.argument("files", nargs=-1, type=FILE, required=True, metavar="FILE...")
@click.option("--watch", "watching", is_flag=True, help="Follow the job to its end; exit code as `watch`.")
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit code as `wait`.")
@click.option(
    "--timeout", type=duration, default="24h", show_default=True, help="With --wait: how long, such as 30m or 1h30m."
)
@click.option("--force-conflicts", is_flag=True, help="Change fields that others have set since, and own them.")
@kube_context_options
@output_option()
def command(
    files: tuple[str, ...],
    watching: bool,
    wait: bool,
    timeout: Duration,
    force_conflicts: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Hand the RLTrainingJobs and RLRuntimes in FILE to the cluster, by server-side apply.

    They are judged here first; what is wrong is said as by `validate`, and nothing is sent. -o json is what was handed
    in, with --wait as it is at the end, with --watch in a line each as those of `watch`.
    """
    if watching and wait:
        raise click.UsageError("--watch follows the job to its end, and --wait waits for it: give one of them")
    validated = read_and_validate(files)
    for document, finding in validated.findings:
        say(f"{document.file}:{document.line_of(finding.field)}: {finding}")
    if validated.findings:
        raise click.exceptions.Exit(EXIT_FAILED)
    place = KubeContext(namespace, context, kubeconfig)
    manifests = [dict(document.manifest) for document in validated.documents]
    objects = run(_submit(manifests, place, files, force=force_conflicts))
    if output == TABLE:
        click.echo("\n".join(each["metadata"]["name"] for each in objects))
    elif watching:
        for each in objects:
            emit_next(each, output)
    elif not wait:
        emit(objects, output)
    code = 0
    for index, metadata in [(index, each["metadata"]) for index, each in enumerate(objects) if each["kind"] == KIND]:
        name, there = metadata["name"], KubeContext(metadata["namespace"], context, kubeconfig)
        back = there.rlt(f"watch {name}")
        detached = f"detached; the job goes on. Back: {back}"
        if watching:
            code = run(watch(name, there, output), detached=detached)
        elif wait:
            code, job = run(follow(name, "Succeeded", timeout, there), detached=detached)
            objects[index] = job or objects[index]
        else:
            say(f"next: {back}")
        if code:
            break
    if wait and output != TABLE:
        emit(objects, output)
    raise click.exceptions.Exit(code)


async def _submit(
    manifests: list[Manifest], place: KubeContext, files: tuple[str, ...], *, force: bool
) -> list[Manifest]:
    async with connected(place) as connection:
        objects = []
        for manifest in sorted(manifests, key=lambda each: each["kind"] == KIND):  # runtimes first
            metadata = dict(manifest["metadata"])
            if manifest["kind"] == KIND:
                own = metadata.setdefault("namespace", connection.namespace)
                if place.namespace and own != place.namespace:
                    raise Failure(
                        f"{metadata['name']} is for namespace {own}, not {place.namespace}.",
                        next=f"{program()} submit --namespace {own} FILE",
                    )
            try:
                objects.append(await connection.apply({**manifest, "metadata": metadata}, force=force))
            except FieldConflictError as conflict:
                words = f"{metadata['name']} has other values now in fields that the file sets: {conflict}."
                again = place.rlt(f"submit {shlex.join(files)} --force-conflicts")
                raise Failure(words, next=again) from conflict
        return objects
