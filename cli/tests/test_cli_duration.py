"""Durations on the command line."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from rlt_cli.duration import parse_duration
from rlt_cli.main import COMMANDS, cli


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("0", 0), ("30s", 30), ("10m", 600), ("1.5m", 90), ("1h30m", 5400), ("1h0m5s", 3605), ("1d", 86400)],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text).seconds == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 m", "30m1h", "-5", "-5m", "1h30", "m", "1e3", "٣s"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{text}' is not a duration: use 90s, 30m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_timeout_option_is_a_duration(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command
    for option in command.params:
        if "--timeout" in option.opts:
            done = CliRunner().invoke(cli, [name, "x", "--timeout", "soon"])
            assert done.exit_code == 2
            assert "'--timeout': 'soon' is not a duration" in done.stderr


def test_a_plain_number_means_seconds() -> None:
    assert parse_duration("90").text == "90s"
