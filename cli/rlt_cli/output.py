"""Output of commands: data on standard output as a table, JSON or YAML; messages on standard error."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from rlt.yaml_text import to_yaml
from rlt_cli.table import format_table

TABLE = "table"
JSON = "json"
YAML = "yaml"
FORMATS = (TABLE, JSON, YAML)
KUBECTL_TEMPLATES = ("jsonpath", "jsonpath-as-json", "go-template", "custom-columns")

Command = TypeVar("Command", bound=Callable[..., Any])


class Format(click.Choice[str]):
    """One of the output formats. For a template of kubectl, the error names the kubectl command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format. Raises BadParameter."""
        if str(value).partition("=")[0] in KUBECTL_TEMPLATES:
            self.fail(
                f"rlt has no templates: use `kubectl get rltrainingjobs -o {shlex.quote(value)}`, or -o json and jq.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


def output_option(*more: str, default: str = TABLE) -> Callable[[Command], Command]:
    """Add -o/--output to a command, which receives one of FORMATS or of `more` as `output`."""
    return click.option(
        "-o", "--output", type=Format([*FORMATS, *more]), default=default, show_default=True, help="Output format."
    )


def print_message(text: str) -> None:
    """Print to standard error, which keeps messages apart from data."""
    click.echo(text, err=True)


def emit(data: object, output: str) -> None:
    """Print data as JSON or YAML."""
    if output == JSON:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        click.echo(to_yaml(data), nl=False)


def emit_item(data: object, output: str) -> None:
    """Print one item of a stream: one line of JSON, or one YAML document."""
    if output == JSON:
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        click.echo(f"---\n{to_yaml(data)}", nl=False)


def emit_result(text: str, data: object, output: str) -> None:
    """Print the result of an action: a text for people, or the changed object as data."""
    if output == TABLE:
        click.echo(text)
    else:
        emit(data, output)


def emit_manifests(manifests: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print manifests: a table of kinds and names, a List in JSON as kubectl accepts it, or YAML documents."""
    if output == TABLE:
        rows = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in manifests]
        emit_table(("KIND", "NAMESPACE", "NAME"), rows)
    elif output == JSON:
        emit({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, JSON)
    else:
        click.echo("---\n".join(map(to_yaml, manifests)), nl=False)


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below the names of their columns."""
    click.echo(format_table(columns, rows, get_width()))


def get_width() -> int | None:
    """The width of the terminal in columns. None if standard output is not one: lines are then not wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
