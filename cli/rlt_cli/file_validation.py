"""Validation of manifest files. Jobs are validated together with their runtimes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rlt_api.crd import GROUP, KIND, RUNTIME_KIND
from rlt_api.finding import Finding
from rlt_api.plain_secrets import warn_plain_secrets
from rlt_api.runtime_policy import ANY_RUNTIME, RuntimePolicy
from rlt_api.validation import validate_job, validate_manifest
from rlt_api.warnings import find_warnings
from rlt_cli.failure import Failure
from rlt_cli.manifest_files import Document, read_documents
from rlt_cli.output import print_message
from rlt_cli.program import program_name

FILE = click.Path(allow_dash=True)
"""A file argument, which shells complete. - is standard input. Existence is checked on read."""
RLT_KINDS = (KIND.lower(), RUNTIME_KIND.lower())


@dataclass(frozen=True)
class ValidatedFiles:
    """The RLTrainingJobs and RLRuntimes in some files."""

    documents: tuple[Document, ...]
    findings: tuple[tuple[Document, Finding], ...]
    """What is invalid, and in which document."""
    runtimes: Mapping[str, Mapping[str, Any]]
    """Name -> spec of each valid runtime."""
    notes: tuple[str, ...]
    """What could not be validated, and valid settings that are probably a mistake: one sentence each."""
    policy: RuntimePolicy = ANY_RUNTIME
    """The policy for the runtimes of the jobs."""

    def jobs(self) -> list[Mapping[str, Any]]:
        """The manifests of the jobs, valid or invalid."""
        return [each.manifest for each in self.documents if each.manifest.get("kind") == KIND]

    def get_runtime_name(self, manifest: Mapping[str, Any]) -> str | None:
        """The name of a job's runtime, which may be the default. None if it has none."""
        return get_runtime_name(manifest, self.policy)

    def finding_lines(self) -> list[str]:
        """Each finding with its file and line."""
        return [f"{document.file}:{document.line_of(finding.field)}: {finding}" for document, finding in self.findings]


def load_files(files: Iterable[str], policy: RuntimePolicy = ANY_RUNTIME) -> ValidatedFiles:
    """Read and validate files, and print the notes. Raises Failure if a file is unreadable or none has an rlt kind."""
    files = list(files)
    try:
        validated = validate_files(files, policy)
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}.", next=f"{program_name()} init > job.yaml") from error
    for note in validated.notes:
        print_message(f"note: {note}")
    if not validated.documents:
        names = ", ".join(files)
        raise Failure(f"{names}: no RLTrainingJob and no RLRuntime.", next=f"{program_name()} init > job.yaml")
    return validated


def load_valid_files(files: Iterable[str], policy: RuntimePolicy = ANY_RUNTIME) -> ValidatedFiles:
    """As `load_files`. Prints the findings and exits with code 1 if a manifest is invalid."""
    validated = load_files(files, policy)
    if validated.findings:
        print_message("\n".join(validated.finding_lines()))
        raise click.exceptions.Exit(1)
    return validated


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


def validate_files(files: Iterable[str], policy: RuntimePolicy = ANY_RUNTIME) -> ValidatedFiles:
    """Read and validate files; `-` is standard input. Raises OSError if a file is unreadable."""
    return validate_documents([document for file in dict.fromkeys(files) for document in read_documents(file)], policy)


def validate_documents(documents: Sequence[Document], policy: RuntimePolicy = ANY_RUNTIME) -> ValidatedFiles:
    """Validate documents: runtimes first, then jobs with the valid runtimes."""
    others = [document for document in documents if _has_other_kind(document.manifest)]
    own = [document for document in documents if document not in others]
    runtimes: dict[str, Mapping[str, Any]] = {}
    findings: list[tuple[Document, Finding]] = []
    for document in sorted(own, key=lambda each: each.manifest.get("kind") != RUNTIME_KIND):
        found = list(document.findings)
        if document.manifest:
            found += validate_manifest(document.manifest, runtimes, policy)
        findings += [(document, finding) for finding in found]
        if not found and document.manifest["kind"] == RUNTIME_KIND:
            runtimes[document.manifest["metadata"]["name"]] = document.manifest["spec"]
    invalid = [document for document, _ in findings]
    notes = [_other_kind_note(document) for document in others] + _missing_runtime_notes(own, runtimes, policy)
    valid = [document for document in own if document not in invalid]
    notes += [note for document in valid for note in _warning_notes(document, runtimes, policy)]
    findings.sort(key=lambda each: (own.index(each[0]), each[0].line_of(each[1].field)))
    return ValidatedFiles(tuple(own), tuple(findings), runtimes, tuple(notes), policy)


def get_runtime_name(manifest: Mapping[str, Any], policy: RuntimePolicy) -> str | None:
    """The name of a job's runtime. None if it has none."""
    match manifest:
        case {"kind": "RLTrainingJob", "spec": {"runtimeRef": {"name": str(name)}}}:
            return name
        case {"kind": "RLTrainingJob", "spec": {"runtimeRef": None} | dict()}:
            return policy.default
    return None


def _has_other_kind(manifest: Mapping[str, Any]) -> bool:
    """Whether it is a manifest of another API. A misspelled rlt kind is not."""
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    return not version.startswith(GROUP) and not difflib.get_close_matches(kind.lower(), RLT_KINDS, cutoff=0.7)


def _other_kind_note(document: Document) -> str:
    kind = f"{document.manifest['apiVersion']} {document.manifest['kind']}"
    return f"{document.file}:{document.line}: {kind} is not an rlt kind: not validated"


def _missing_runtime_notes(
    documents: Sequence[Document], runtimes: Mapping[str, object], policy: RuntimePolicy
) -> list[str]:
    names = {document: get_runtime_name(document.manifest, policy) for document in documents}
    return [
        f"{document.file}:{document.line_of('spec.runtimeRef')}: runtime {name} is not in the given files: "
        "rules that need it were not applied; pass it with --runtime FILE"
        for document, name in names.items()
        if name is not None and name not in runtimes
    ]


def _warning_notes(
    document: Document, runtimes: Mapping[str, Mapping[str, Any]], policy: RuntimePolicy
) -> Iterator[str]:
    """The warnings of rlt_api with file and line. Those about the whole spec need the runtime of the job."""
    manifest, name = document.manifest, get_runtime_name(document.manifest, policy)
    sentences = list(warn_plain_secrets(manifest["spec"]))
    if manifest["kind"] == KIND and (name is None or name in runtimes):
        spec = validate_job(manifest["metadata"]["name"], manifest["spec"], runtimes.get(name or "")).spec
        sentences += find_warnings(spec) if spec else ()
    for sentence in sentences:
        yield f"{document.file}:{document.line_of(sentence.partition(':')[0])}: {sentence}"
