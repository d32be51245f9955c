"""rlt bundle: write everything about a job to an archive, for a bug report."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from rlt.kube_context import KubeContext
from rlt_cli.bundle import Bundle, collect_bundle
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message


@click.command()
@click.argument("name")
@click.option(
    "--file", type=click.Path(path_type=Path), metavar="FILE", help="Archive to write.  [default: NAME-bundle.tar.gz]"
)
@kube_context_options
@output_option()
def command(name: str, file: Path | None, kube_context: KubeContext, output: str) -> None:
    """Write everything about a job to an archive, for a bug report.

    It contains the job, its runtime and children, events, versions, logs of its pods and of the operator, and the logs
    and stacks of its attempts. A pod that reads these from the volume of the job runs for some seconds. Secrets are
    masked as far as their name or shape shows them: check the logs before you publish the archive. errors.txt in it
    lists what could not be read.
    """
    bundle = run(_collect(name, kube_context))
    path = file or Path(f"{name}-bundle.tar.gz")
    try:
        bundle.write(path, f"{name}-bundle", datetime.now(UTC))
    except OSError as error:
        raise Failure(f"Cannot write {path}: {error.strerror}.", next=f"rlt bundle {name} --file FILE") from error
    for missing in bundle.errors:
        print_message(f"not in the archive: {missing}")
    emit_result(str(path), {"file": str(path), "files": sorted(bundle.files), "errors": bundle.errors}, output)


async def _collect(name: str, kube_context: KubeContext) -> Bundle:
    async with connect(kube_context) as connection:
        return await collect_bundle(connection, name)
