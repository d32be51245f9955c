"""What is right and what is wrong in manifest files, the jobs being held to their runtimes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlt_api.advice import advice
from rlt_api.crd import GROUP, KIND, RUNTIME_KIND
from rlt_api.finding import Finding
from rlt_api.validation import validate_job, validate_manifest
from rlt_cli.manifest_files import Document, read_documents

OUR_KINDS = (KIND.lower(), RUNTIME_KIND.lower())


@dataclass(frozen=True)
class ValidatedFiles:
    """The RLTrainingJobs and RLRuntimes in some files."""

    documents: tuple[Document, ...]
    findings: tuple[tuple[Document, Finding], ...]
    """What is wrong, and where. Empty if nothing is."""
    runtimes: Mapping[str, Mapping[str, Any]]
    """Specs of the runtimes that are right, by name."""
    notes: tuple[str, ...]
    """What could not be asked, and what is right but probably not meant: each a sentence."""

    def jobs(self) -> list[Mapping[str, Any]]:
        """The manifests of the jobs, right or wrong."""
        return [each.manifest for each in self.documents if each.manifest.get("kind") == KIND]


def validate_files(files: Iterable[str]) -> ValidatedFiles:
    """Read and judge the files; `-` is standard input. Raises OSError for one that cannot be read."""
    return validate_documents([document for file in dict.fromkeys(files) for document in read_documents(file)])


def validate_documents(documents: Sequence[Document]) -> ValidatedFiles:
    """Judge what was read."""
    others = [document for document in documents if _is_somebody_elses(document.manifest)]
    ours = [document for document in documents if document not in others]
    runtimes: dict[str, Mapping[str, Any]] = {}
    findings: list[tuple[Document, Finding]] = []
    for document in sorted(ours, key=lambda each: each.manifest.get("kind") != RUNTIME_KIND):
        found = list(document.findings)
        if document.manifest:
            found += validate_manifest(document.manifest, runtimes)
        findings += [(document, finding) for finding in found]
        if not found and document.manifest["kind"] == RUNTIME_KIND:
            runtimes[document.manifest["metadata"]["name"]] = document.manifest["spec"]
    notes = [_left_alone(document) for document in others] + _missing_runtimes(ours, runtimes)
    wrong = [document for document, _ in findings]
    notes += [note for document in ours if document not in wrong for note in _advice(document, runtimes)]
    findings.sort(key=lambda each: (ours.index(each[0]), each[0].line_of(each[1].field)))
    return ValidatedFiles(tuple(ours), tuple(findings), runtimes, tuple(notes))


def runtime_name(manifest: Mapping[str, Any]) -> str | None:
    """The runtime that a job names."""
    match manifest:
        case {"kind": "RLTrainingJob", "spec": {"runtimeRef": {"name": str(name)}}}:
            return name
    return None


def _is_somebody_elses(manifest: Mapping[str, Any]) -> bool:
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    return not version.startswith(GROUP) and not difflib.get_close_matches(kind.lower(), OUR_KINDS, cutoff=0.7)


def _left_alone(document: Document) -> str:
    manifest = document.manifest
    return f"{document.file}:{document.line}: {manifest['apiVersion']} {manifest['kind']} is not rlt's: not checked"


def _missing_runtimes(documents: Sequence[Document], runtimes: Mapping[str, object]) -> list[str]:
    wanted = {document: runtime_name(document.manifest) for document in documents}
    return [
        f"{document.file}:{document.line_of('spec.runtimeRef')}: runtime {name} is not at hand: "
        "rules that need it were not asked; give it by --runtime FILE"
        for document, name in wanted.items()
        if name is not None and name not in runtimes
    ]


def _advice(document: Document, runtimes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Where it is, and the words of rlt_api.advice. Nothing of a job whose runtime is not at hand."""
    manifest, name = document.manifest, runtime_name(document.manifest)
    if manifest["kind"] != KIND or (name is not None and name not in runtimes):
        return
    spec = validate_job(manifest["metadata"]["name"], manifest["spec"], runtimes.get(name or "")).spec
    for sentence in advice(spec) if spec else ():
        yield f"{document.file}:{document.line_of(sentence.partition(':')[0])}: {sentence}"
