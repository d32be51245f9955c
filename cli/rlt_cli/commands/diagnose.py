"""rlt diagnose: search logs for known failures."""

from __future__ import annotations

import click

from rlt_cli.failure import Failure
from rlt_cli.log_files import DAMAGED, LogFiles
from rlt_cli.output import TABLE, emit, get_width, output_option, print_message
from rlt_cli.pages.finding_card import format_card
from rlt_core.knowledge.diagnosis import LogFinding, diagnose_logs

LOG = click.Path(exists=True, allow_dash=True)


@click.command()
@click.option("--log", "logs", multiple=True, type=LOG, metavar="FILE", help="A log. Can be repeated.")
@click.argument("more", nargs=-1, type=LOG, metavar="[FILE]...")
@output_option()
def command(logs: tuple[str, ...], more: tuple[str, ...], output: str) -> None:
    """Find failures in logs, without a cluster.

    FILE is a log, a directory of logs, an archive such as rlt bundle's, a .gz file, or - for standard input. Logs
    of all kinds help: of the driver, of workers, of Ray, and events of pods. The best explanation is first: errors
    before warnings, causes before their effects, earlier lines before later ones. Secrets in the evidence are masked.
    Exit code 0 also if nothing is found.
    """
    if not logs and not more:
        raise click.UsageError("Missing option '--log FILE'.")
    files = LogFiles((*logs, *more))
    try:
        findings = diagnose_logs(files.open_all())
    except DAMAGED as error:
        message = f"{files.path}: not a complete archive: {error or type(error).__name__}."
        raise Failure(message, next=f"ls -l {files.path}") from error
    for note in files.notes:
        print_message(note)
    if output != TABLE:
        emit([_to_json(finding, files.names[finding.log]) for finding in findings], output)
        return
    for finding in findings:
        rank = f", rank {finding.rank}" if finding.rank is not None else ""
        process = f", {finding.process}" if finding.process else ""
        name = files.names[finding.log]
        click.echo(format_card(_to_json(finding, name), f"{name}:{finding.line}{rank}{process}", get_width()) + "\n")
    if not findings:
        print_message("no failure found")


def _to_json(finding: LogFinding, file: str) -> dict[str, str | int | None]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
        "source": finding.source,
        "file": file,
        "line": finding.line,
        "rank": finding.rank,
        "process": finding.process,
        "node": finding.node,
    }
