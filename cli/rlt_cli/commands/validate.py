"""rlt validate: validate manifests."""

from __future__ import annotations

from dataclasses import asdict

import click

from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_cli.file_arguments import files_argument
from rlt_cli.file_validation import load_files
from rlt_cli.output import TABLE, emit, output_option, print_message
from rlt_cli.runtime_options import runtime_options


@click.command()
@files_argument
@runtime_options
@output_option()
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    runtimes: tuple[str, ...],
    default_runtime: str | None,
    output: str,
) -> None:
    """Validate manifests, without a cluster.

    FILE contains any number of RLTrainingJobs and RLRuntimes in YAML or JSON; - is standard input, and of a directory
    all .yaml, .yml and .json files are read. The operator applies
    the same rules, and the labels of the namespace: --default-runtime is the default runtime of the namespace. Exit
    code 1 if a manifest is invalid; notes do not change it.
    """
    validated = load_files((*files, *runtimes), RuntimePolicy(default_runtime))
    if output != TABLE:
        errors = [
            {"severity": "error", "file": document.file, "line": document.line_of(finding.field), **finding.to_json()}
            for document, finding in validated.findings
        ]
        emit([*errors, *({"severity": "note", **asdict(note)} for note in validated.notes)], output)
    else:
        for line in validated.finding_lines():
            click.echo(line)
    count = len(validated.documents)
    if validated.findings:
        invalid = len({id(document) for document, _ in validated.findings})
        print_message(f"{invalid} of {count} manifest{'s' * (count > 1)} {'are' if invalid > 1 else 'is'} invalid")
        context.exit(1)
    print_message(f"{count} manifests are valid" if count > 1 else "1 manifest is valid")
