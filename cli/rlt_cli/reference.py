"""The page docs/reference/cli.md, generated from the commands."""

from __future__ import annotations

import inspect

import click

from rlt_cli.main import COMMANDS, cli


def build_cli_reference() -> str:
    """Return the page in Markdown."""
    context = click.Context(cli, info_name="rlt")
    lines = ["<!-- Generated from rlt_cli by `make generate`. Do not edit. -->", "# rlt", "", _text(cli), ""]
    lines += ["| command | description |", "|---|---|"]
    lines += [f"| [`rlt {name}`](#rlt-{name}) | {text} |" for name, text in COMMANDS.items()]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command
        lines += ["", *_section(name, command)]
    return "\n".join(lines) + "\n"


def _section(name: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=f"rlt {name}")
    usage = " ".join([f"rlt {name}", *command.collect_usage_pieces(context)])
    lines = [f"## rlt {name}", "", f"    {usage}", "", _text(command)]
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        lines += ["", "| option | description |", "|---|---|"]
        records = [record for option in options if (record := option.get_help_record(context))]
        lines += [f"| `{_cell(flag)}` | {_cell(text)} |" for flag, text in records]
    return lines


def _text(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
