"""rlt diff: show what `rlt submit` would change."""

from __future__ import annotations

import difflib
from typing import Any

import click

from rlt.errors import FieldConflictError
from rlt.kube_context import KubeContext
from rlt.validation import drop_server_fields
from rlt.yaml_text import to_yaml
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import files_argument
from rlt_cli.file_validation import load_valid_submission
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, output_option
from rlt_core.job import Manifest


@click.command()
@files_argument
@click.option("--force-conflicts", is_flag=True, help="Overwrite fields that other field managers changed.")
@kube_context_options
@output_option()
@click.pass_context
def command(
    context: click.Context, files: tuple[str, ...], force_conflicts: bool, kube_context: KubeContext, output: str
) -> None:
    """Show what `rlt submit` would change in the cluster.

    The API server and the webhook process the manifests and store nothing. -o json prints the changed objects before
    and after. Exit code 1 if something would change.
    """
    changes = run(_find_changes(load_valid_submission(files), kube_context, force=force_conflicts))
    if output != TABLE:
        emit([{"live": live, "submitted": submitted} for live, submitted in changes], output)
    else:
        for live, submitted in changes:
            name = f"{submitted['kind']}/{submitted['metadata']['name']}"
            before, after = (to_yaml(each).splitlines() if each else [] for each in (live, submitted))
            for line in difflib.unified_diff(before, after, f"live/{name}", f"submitted/{name}", lineterm=""):
                click.echo(line)
    context.exit(1 if changes else 0)


async def _find_changes(
    manifests: list[dict[str, Any]], kube_context: KubeContext, *, force: bool
) -> list[tuple[Manifest | None, Manifest]]:
    """The objects that would change, before (None: new) and after."""
    pairs = []
    async with connect(kube_context) as connection:
        for manifest in map(connection.with_namespace, manifests):
            live = await connection.find(manifest)
            try:
                submitted = await connection.apply(manifest, force=force, dry_run=True)
            except FieldConflictError as conflict:
                name = manifest["metadata"]["name"]
                message = f"{name}: other field managers changed fields of the file: {conflict.fields}."
                raise Failure(message, next=kube_context.command_line("diff --force-conflicts FILE")) from conflict
            pairs.append((live and drop_server_fields(live), drop_server_fields(submitted)))
    return [(live, submitted) for live, submitted in pairs if live != submitted]
