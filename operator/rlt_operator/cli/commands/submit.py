"""rlt submit: jobs and runtimes from files to the cluster."""

from __future__ import annotations

import click

from rlt_operator.cli.commands.wait import EXIT_FAILED, follow
from rlt_operator.cli.connection import Place, connected, place_options, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.main import program
from rlt_operator.cli.output import say
from rlt_operator.cli.readable_files import FILE, read_and_validate
from rlt_operator.observation import Manifest


@click.command()
@click.argument("files", nargs=-1, type=FILE, required=True, metavar="FILE...")
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit code as `wait`.")
@click.option("--timeout", default="24h", show_default=True, help="With --wait: how long, such as 30m.")
@place_options
def command(
    files: tuple[str, ...], wait: bool, timeout: str, namespace: str | None, context: str | None, kubeconfig: str | None
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
    names, place = run(_submit([dict(document.manifest) for document in validated.documents], place))
    for name in names:
        click.echo(name)
    if wait and names:
        code = run(
            follow(names[0], "Succeeded", timeout, place),
            detached=f"detached; the job goes on. Back: {program()} watch {names[0]}",
        )
        raise click.exceptions.Exit(code)
    if names:
        say(f"next: {program()} watch {names[0]} -n {place.namespace}")


async def _submit(manifests: list[Manifest], place: Place) -> tuple[list[str], Place]:
    async with connected(place) as connection:
        names = []
        for manifest in sorted(manifests, key=lambda each: each["kind"] != "RLRuntime"):
            if manifest["kind"] == "RLTrainingJob":
                own = manifest["metadata"].get("namespace")
                if own and place.namespace and own != place.namespace:
                    raise Failure(
                        f"{manifest['metadata']['name']} is for namespace {own}, not {place.namespace}.",
                        next=f"{program()} submit --namespace {own} FILE",
                    )
                manifest["metadata"] = {**manifest["metadata"], "namespace": own or connection.namespace}
                names.append(manifest["metadata"]["name"])
                place = Place(manifest["metadata"]["namespace"], place.context, place.kubeconfig)
            await connection.apply(manifest)
        return names, place
