"""rlt diagnose: search logs for known failures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import click

from rlt_cli.finding_card import format_card
from rlt_cli.output import TABLE, emit, get_width, output_option, print_message
from rlt_core.knowledge.diagnosis import LogFinding, diagnose_logs

LOG = click.Path(exists=True, allow_dash=True)
STANDARD_INPUT = "-"


@click.command()
@click.option("--log", "logs", multiple=True, type=LOG, metavar="FILE", help="A log. Can be repeated.")
@click.argument("more", nargs=-1, type=LOG, metavar="[FILE]...")
@output_option()
def command(logs: tuple[str, ...], more: tuple[str, ...], output: str) -> None:
    """Find known failures in logs, without a cluster.

    FILE is a log, a directory of logs, or - for standard input. Logs of all kinds help: of the driver, of workers, of
    Ray, and events of pods. The best explanation is first: errors before warnings, causes before their effects, earlier
    lines before later ones. Secrets in the evidence are masked. Exit code 0 also if nothing is found.
    """
    if not logs and not more:
        raise click.UsageError("Missing option '--log FILE'.")
    names = list(_list_files((*logs, *more)))
    findings = diagnose_logs(_open_logs(names))
    if output != TABLE:
        emit([_to_json(finding) for finding in findings], output)
        return
    for finding in findings:
        rank = f", rank {finding.rank}" if finding.rank is not None else ""
        click.echo(format_card(_to_json(finding), f"{names[finding.log]}:{finding.line}{rank}", get_width()) + "\n")
    if not findings:
        print_message("no known failure found")


def _list_files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if path == STANDARD_INPUT or not Path(path).is_dir():
            yield path
        else:
            yield from (str(each) for each in sorted(Path(path).rglob("*")) if each.is_file())


def _open_logs(names: Sequence[str]) -> Iterator[BinaryIO]:
    for name in names:
        if name == STANDARD_INPUT:
            yield sys.stdin.buffer
        else:
            with open(name, "rb") as file:
                yield file


def _to_json(finding: LogFinding) -> dict[str, str]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
        "source": finding.source,
    }
