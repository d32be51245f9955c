"""rlt explain: describe a field of the API."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Any

import click

from rlt.program import program_name
from rlt_api.schema.crd import KIND, RUNTIME_KIND
from rlt_cli.failure import Failure
from rlt_cli.field_guide import MODELS, Field, complete_path, find_field, spec_field
from rlt_cli.file_arguments import FILE
from rlt_cli.output import JSON, TABLE, emit, output_option
from rlt_cli.runtime_options import runtime_options
from rlt_cli.table import format_table

MAX_TEXT_WIDTH = 100
MIN_DESCRIPTION_WIDTH = 40


def _complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return complete_path(start)


@click.command()
@click.argument("field", required=False, shell_complete=_complete)
@click.argument("job", required=False, type=FILE, metavar="[JOB]")
@click.option(
    "--nodes",
    type=FILE,
    metavar="FILE",
    help="Output of `kubectl get nodes -o yaml`, or a list of machines, for `explain network JOB`.",
)
@runtime_options
@click.option(
    "--json-schema",
    "schema_of",
    type=click.Choice([KIND.lower(), RUNTIME_KIND.lower()]),
    help="Print the JSON schema of this kind, for editors. -o table prints JSON.",
)
@output_option()
def command(
    field: str | None,
    job: str | None,
    nodes: str | None,
    runtimes: tuple[str, ...],
    default_runtime: str | None,
    schema_of: str | None,
    output: str,
) -> None:
    """Describe a field of the API.

    The description contains type, default, bounds and rules.

    FIELD is a path such as spec.rollout.topP, status.progress or rlruntime.spec.limits, a unique end of a path in the
    spec, or a name in verl, OpenRLHF or ROLL such as top_p or actor_rollout_ref.rollout.top_p. Without FIELD, the
    command lists the blocks of a job.

    `explain network JOB --nodes FILE` shows the network profile of the job on these nodes, and the reason for each
    variable. Exit code 1 if the operator would hold the job.
    """
    if job or nodes:
        if field != "network" or not job or not nodes:
            raise click.UsageError("JOB and --nodes require each other: explain network JOB --nodes FILE")
        from rlt_cli.pages.network import explain_network

        raise click.exceptions.Exit(explain_network(job, nodes, runtimes, default_runtime, output))
    if schema_of:
        from rlt_api.schema.editor_schema import build_editor_schema

        kind = next(kind for kind in MODELS if kind.lower() == schema_of)
        emit(build_editor_schema(kind, MODELS[kind]), JSON if output == TABLE else output)
        return
    try:
        found = find_field(field) if field else spec_field()
    except ValueError as error:
        raise Failure(str(error), next=f"{program_name()} explain") from error
    if output == TABLE:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_TEXT_WIDTH
        click.echo(format_page(found, columns))
    else:
        emit(to_json(found), output)


def to_json(field: Field) -> dict[str, Any]:
    """Everything about a field as JSON. null: not set."""
    return {
        "kind": field.kind,
        "field": field.path,
        "type": field.type,
        "required": field.required,
        "default": field.schema.get("default"),
        "bounds": field.bounds,
        "description": field.description,
        "elsewhere": field.elsewhere,
        "rules": field.rules,
        "fields": [child.name for child in field.fields],
    }


def format_page(field: Field, columns: int) -> str:
    """Everything about a field as text. `columns`: the width of the terminal."""
    width = min(columns, MAX_TEXT_WIDTH)
    facts = [
        ("type", field.type + (", required" if field.required else "")),
        ("default", field.default),
        ("bounds", field.bounds),
        *((table, ", ".join(keys)) for table, keys in field.elsewhere.items()),
        *(("rule", rule) for rule in field.rules),
    ]
    lines = [f"{field.kind}  {field.path}", "", *textwrap.wrap(field.description, width), ""]
    for name, value in facts:
        if value is not None:
            lines += textwrap.wrap(value, width, initial_indent=f"{name:<19}", subsequent_indent=" " * 19)
    if field.fields:
        names = [(child.name, child.type) for child in field.fields]
        used = sum(max(map(len, column)) for column in zip(*names, ("FIELD", "TYPE"), strict=True)) + 2 * 3
        left = max(MIN_DESCRIPTION_WIDTH, columns - used)
        rows = [
            (*name, textwrap.shorten(child.description, left, placeholder=" …"))
            for name, child in zip(names, field.fields, strict=True)
        ]
        lines += ["", format_table(("FIELD", "TYPE", "DESCRIPTION"), rows)]
    return "\n".join(lines)
