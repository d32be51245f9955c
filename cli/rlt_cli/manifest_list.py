"""Manifests on standard output: a table of what there is, JSON as kubectl takes it, or YAML documents."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rlt_cli.output import JSON, TABLE, as_yaml, emit, emit_table
from rlt_core.job import Manifest


def emit_manifests(manifests: Sequence[Manifest], output: str) -> None:
    """Print them, all of them being objects with a name."""
    if output == TABLE:
        rows = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in manifests]
        emit_table(("KIND", "NAMESPACE", "NAME"), rows)
    elif output == JSON:
        emit({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, JSON)
    else:
        click.echo("---\n".join(map(as_yaml, manifests)), nl=False)
