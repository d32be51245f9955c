"""rlt submit: jobs and runtimes from files to the cluster."""

from __future__ import annotations

import click

from rlt_api.crd import KIND
from rlt_operator.cli.commands.wait import EXIT_FAILED, follow
from rlt_operator.cli.commands.watch import watch
from rlt_operator.cli.connection import Place, connected, place_options, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.main import program
from rlt_operator.cli.output import output_option, say, tell
from rlt_operator.cli.readable_files import FILE, read_and_validate
from rlt_operator.observation import Manifest


@click.command()
@click.argument("files", nargs=-1, type=FILE, required=True, metavar="FILE...")
@click.option("--watch", "watching", is_flag=True, help="Follow the job to its end; exit code as `watch`.")
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit code as `wait`.")
@click.option("--timeout", default="24h", show_default=True, help="With --wait: how long, such as 30m.")
@place_options
@output_option
def command(
    files: tuple[str, ...],
    watching: bool,
    wait: bool,
    timeout: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Hand the RLTrainingJobs and RLRuntimes in FILE to the cluster.

    They are judged here first; what is wrong is said as by `validate`, and nothing is sent.
    """
    validated = read_and_validate(files)
    for document, finding in validated.findings:
        say(f"{document.file}:{document.line_of(finding.field)}: {finding}")
    if validated.findings:
        raise click.exceptions.Exit(EXIT_FAILED)
    place = Place(namespace, context, kubeconfig)
    objects = run(_submit([dict(document.manifest) for document in validated.documents], place))
    tell("\n".join(each["metadata"]["name"] for each in objects), objects, output)
    for job in (each["metadata"] for each in objects if each["kind"] == KIND):
        there = Place(job["namespace"], context, kubeconfig)
        back = there.rlt(f"watch {job['name']}")
        detached = f"detached; the job goes on. Back: {back}"
        if watching:
            code = run(watch(job["name"], there), detached=detached)
        elif wait:
            code, _ = run(follow(job["name"], "Succeeded", timeout, there), detached=detached)
        else:
            say(f"next: {back}")
            continue
        if code:
            raise click.exceptions.Exit(code)


async def _submit(manifests: list[Manifest], place: Place) -> list[Manifest]:
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
            objects.append(await connection.apply({**manifest, "metadata": metadata}))
        return objects
