"""The list of commands in `rlt --help`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rlt_cli.main import ALIASES, COMMANDS, MEANINGS, cli


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_shows_the_first_sentence_of_each_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command
    assert command.get_short_help_str(limit=200).removesuffix(".") == COMMANDS[name]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def test_a_mistyped_command_gets_a_suggestion() -> None:
    done = run("valdate", "job.yaml")
    assert done.exit_code == 2
    assert "No such command 'valdate'. Did you mean validate?" in done.stderr
    assert "Did you mean apply?" in run("applz", "sum").stderr


@pytest.mark.parametrize(
    ("name", "meant"),
    [("stop", "cancel"), ("rm", "delete"), ("ps", "get"), ("edit", "submit"), ("tail", "logs --follow")],
)
def test_a_name_with_the_meaning_of_a_command_gets_a_suggestion(name: str, meant: str) -> None:
    assert f"No such command {name!r}. Did you mean {meant}?" in run(name, "sum").stderr


def test_suggestions_are_commands() -> None:
    assert {meant.partition(" ")[0] for meant in MEANINGS.values()} <= set(COMMANDS)
    assert not MEANINGS.keys() & (COMMANDS.keys() | ALIASES.keys())


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_names_of_other_programs_are_accepted(alias: str, name: str) -> None:
    assert run(alias, "--help").stdout == run(name, "--help").stdout.replace(f"cli {name}", f"cli {alias}")


def test_help_describes_a_command() -> None:
    assert run("help", "render").stdout == run("render", "--help").stdout.replace("Usage: cli", "Usage: cli")
    assert run("help").stdout == run("--help").stdout
    assert run("help", "rendr").exit_code == 2


def test_version_is_an_option() -> None:
    assert re.fullmatch(r"rlt \d+\.\d+\S*\n", run("--version").stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_an_output_that_cannot_be_written_is_an_error(redirection: str) -> None:
    command = f"{sys.executable} -c 'from rlt_cli.main import main; main()' init {redirection}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_help_imports_no_command() -> None:
    script = (
        "import sys; from rlt_cli.main import cli\n"
        "try: cli(['--help'])\n"
        "finally: print('imported:', [name for name in sys.modules if name.startswith('rlt_cli.commands')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("imported: []\n")
