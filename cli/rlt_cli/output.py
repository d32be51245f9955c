"""How commands answer: data on standard output as a table, JSON or YAML, talk on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

TABLE, JSON, YAML = FORMATS = ("table", "json", "yaml")

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(*more: str, default: str = TABLE) -> Callable[[Command], Command]:
    """-o/--output: the command is called with `output`, one of FORMATS or of `more`."""
    choice = click.Choice([*FORMATS, *more])
    return click.option("-o", "--output", type=choice, default=default, show_default=True, help="Form of the answer.")


def emit(data: object, output: str) -> None:
    """Print data as JSON or YAML."""
    if output == JSON:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        click.echo(as_yaml(data), nl=False)


def emit_next(data: object, output: str) -> None:
    """Print one more of a stream: as JSON in a line of its own, or as a YAML document of its own."""
    if output == JSON:
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        click.echo(f"---\n{as_yaml(data)}", nl=False)


def as_yaml(data: object) -> str:
    """One document, with texts of several lines as blocks and without aliases."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))


def tell(words: str, data: object, output: str) -> None:
    """What has been done: in words, or the object that it was done to as data."""
    if output == TABLE:
        click.echo(words)
    else:
        emit(data, output)


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below the names of their columns."""
    click.echo(table(columns, rows))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they need to be, as kubectl has them; None is left empty."""
    lines = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(click.unstyle(line[i])) for line in lines) for i in range(len(columns))]
    return "\n".join("   ".join(map(_pad, line, widths)).rstrip() for line in lines)


def say(text: str) -> None:
    """Talk: on standard error, so that it never mixes with data."""
    click.echo(text, err=True)


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - len(click.unstyle(text)))
