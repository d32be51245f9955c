"""Files that the user names, read and judged; what is wrong becomes talk and an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from rlt_cli.failure import Failure
from rlt_cli.main import program
from rlt_cli.output import say
from rlt_cli.validated_files import ValidatedFiles, runtime_name, validate_files

FILE = click.Path(allow_dash=True)
"""A file that shells complete; - is standard input. Whether it is there is seen when it is read."""


def read_and_validate(files: Iterable[str]) -> ValidatedFiles:
    """`validate_files`, its notes said. Files that cannot be read or hold nothing of ours end the command."""
    files = list(files)
    try:
        validated = validate_files(files)
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}.", next=f"{program()} init > job.yaml") from error
    for note in validated.notes:
        say(f"note: {note}")
    if not validated.documents:
        names = ", ".join(files)
        raise Failure(f"{names}: no RLTrainingJob and no RLRuntime.", next=f"{program()} init > job.yaml")
    return validated


def valid_jobs(file: str, runtimes: Sequence[str]) -> ValidatedFiles:
    """A file with at least one job, all being right, and their runtimes. Else the command ends, and says why."""
    validated = read_and_validate([file, *runtimes])
    if validated.findings:
        for document, finding in validated.findings:
            say(f"{document.file}:{document.line_of(finding.field)}: {finding}")
        raise click.exceptions.Exit(1)
    if not validated.jobs():
        raise Failure(f"{file}: no RLTrainingJob.", next=f"{program()} validate {file}")
    for name in filter(None, map(runtime_name, validated.jobs())):
        if name not in validated.runtimes:
            raise Failure(
                f"{file}: names the runtime {name}, which is in none of the files; give --runtime FILE.",
                next=f"kubectl get rlruntime {name} -o yaml > {name}.yaml",
            )
    return validated
