"""rlt validate: what is wrong with manifests, without a cluster."""

from __future__ import annotations

import click

from rlt_cli.output import TABLE, emit, output_option, say
from rlt_cli.readable_files import FILE, read_and_validate


@click.command()
@click.argument("files", nargs=-1, type=FILE, required=True, metavar="FILE...")
@click.option("--runtime", "runtimes", multiple=True, type=FILE, metavar="FILE", help="RLRuntimes that the jobs name.")
@output_option()
@click.pass_context
def command(context: click.Context, files: tuple[str, ...], runtimes: tuple[str, ...], output: str) -> None:
    """Say what is wrong with RLTrainingJobs and RLRuntimes. Exit code 1 if anything is.

    FILE holds any number of manifests in YAML or JSON; - is standard input. The rules are the operator's own, and no
    cluster is asked.
    """
    validated = read_and_validate((*files, *runtimes))
    if output != TABLE:
        emit([{"file": document.file, **finding.to_json()} for document, finding in validated.findings], output)
    else:
        for document, finding in validated.findings:
            click.echo(f"{document.file}:{document.line_of(finding.field)}: {finding}")
    count = len(validated.documents)
    if validated.findings:
        wrong = len({id(document) for document, _ in validated.findings})
        say(f"{wrong} of {count} manifest{'s' * (count > 1)} {'are' if wrong > 1 else 'is'} wrong")
        context.exit(1)
    say(f"{count} manifests are right" if count > 1 else "1 manifest is right")
