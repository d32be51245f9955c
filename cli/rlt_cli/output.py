"""Output of commands: data on standard output as a table, JSON or YAML; messages on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

TABLE, JSON, YAML = FORMATS = ("table", "json", "yaml")

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(*more: str, default: str = TABLE) -> Callable[[Command], Command]:
    """Add -o/--output to a command, which receives one of FORMATS or of `more` as `output`."""
    choice = click.Choice([*FORMATS, *more])
    return click.option("-o", "--output", type=choice, default=default, show_default=True, help="Output format.")


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
    click.echo(format_table(columns, rows))


def format_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in kubectl's form: each column is as wide as its widest cell. None is an empty cell."""
    lines = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(click.unstyle(line[i])) for line in lines) for i in range(len(columns))]
    return "\n".join("   ".join(map(_pad, line, widths)).rstrip() for line in lines)


def to_yaml(data: object) -> str:
    """One YAML document, with multi-line strings as blocks and without aliases."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - len(click.unstyle(text)))
