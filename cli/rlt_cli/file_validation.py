"""The manifest files of a command: what is invalid or unreadable ends it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from rlt.program import program_name
from rlt.validation import ValidatedFiles, drop_server_fields, validate_files
from rlt_api.schema.crd import KIND
from rlt_api.spec.runtime_policy import ANY_RUNTIME, RuntimePolicy
from rlt_cli.failure import Failure
from rlt_cli.output import print_message


def load_files(files: Iterable[str], policy: RuntimePolicy = ANY_RUNTIME) -> ValidatedFiles:
    """Read and validate files, and print the notes. Raises Failure if a file is unreadable or none has an rlt kind."""
    files = list(files)
    try:
        validated = validate_files(files, policy)
    except OSError as error:
        folder = shlex.quote(str(Path(error.filename).parent))
        raise Failure(f"{error.filename}: {error.strerror}.", next=f"ls -l {folder}") from error
    for note in validated.notes:
        print_message(f"note: {note}")
    if not validated.documents:
        names = ", ".join(files)
        raise Failure(f"{names}: no RLTrainingJob and no RLRuntime.", next=f"{program_name()} init")
    return validated


def load_valid_files(files: Iterable[str], policy: RuntimePolicy = ANY_RUNTIME) -> ValidatedFiles:
    """As `load_files`. Prints the findings and exits with code 1 if a manifest is invalid."""
    validated = load_files(files, policy)
    if validated.findings:
        print_message("\n".join(validated.finding_lines()))
        raise click.exceptions.Exit(1)
    return validated


def load_valid_submission(files: Iterable[str]) -> list[dict[str, Any]]:
    """As `load_valid_files`, for the cluster: the manifests as the user writes them, first the runtimes and the
    PersistentVolumeClaims of the jobs. Raises Failure for one without a name."""
    validated = load_valid_files(files, RuntimePolicy(unknown=True))
    for document in validated.documents:
        if not document.manifest["metadata"].get("name"):
            message = f"{document.file}:{document.line_of('metadata')}: metadata.generateName: server-side apply needs "
            raise Failure(f"{message}metadata.name.", next=f"kubectl create -f {shlex.quote(document.file)}")
    manifests = [drop_server_fields(each.manifest) for each in (*validated.claims, *validated.documents)]
    return sorted(manifests, key=lambda each: bool(each["kind"] == KIND))


def load_valid_jobs(file: str, runtimes: Sequence[str], default_runtime: str | None) -> ValidatedFiles:
    """As `load_valid_files`. Raises Failure if `file` has no job or if the runtime of a job is missing."""
    validated = load_valid_files([file, *runtimes], RuntimePolicy(default_runtime))
    if not validated.jobs():
        raise Failure(f"{file}: no RLTrainingJob.", next=f"{program_name()} validate {file}")
    for name in filter(None, map(validated.get_runtime_name, validated.jobs())):
        if name not in validated.runtimes:
            raise Failure(
                f"{file}: spec.runtimeRef.name: {name} is not in the given files: pass it with --runtime FILE.",
                next=f"kubectl get rlruntime {name} -o yaml > {name}.yaml",
            )
    return validated
