"""The list of commands in `rlt --help`."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from rlt_cli.main import COMMANDS, cli


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_shows_the_first_sentence_of_each_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command
    assert command.get_short_help_str(limit=200).removesuffix(".") == COMMANDS[name]


def test_help_imports_no_command() -> None:
    script = (
        "import sys; from rlt_cli.main import cli\n"
        "try: cli(['--help'])\n"
        "finally: print('imported:', [name for name in sys.modules if name.startswith('rlt_cli.commands')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("imported: []\n")
