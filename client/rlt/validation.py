"""Validation of manifests. Jobs are validated together with their runtimes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlt.chat_template import validate_chat_template, warn_local_template
from rlt.manifest_files import Document, read_documents
from rlt.model_config import validate_local_model
from rlt.volume_claims import SIZE, is_claim, warn_small_claim
from rlt_api.findings.finding import Finding
from rlt_api.model import ApiModel
from rlt_api.rules.metadata import GENERATED_SUFFIX_LENGTH
from rlt_api.schema.crd import GROUP, KIND, RUNTIME_KIND
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.plain_secrets import warn_plain_secrets
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.spec.runtime_policy import ANY_RUNTIME, RuntimePolicy
from rlt_api.validation.validate import validate_job, validate_manifest, validate_structure
from rlt_api.validation.warnings import find_warnings
from rlt_core.fabric.profiles import validate_profile_name

USER_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
"""The fields of metadata that users set."""
LINE = re.compile(r"^(after )?line \d+(, )?")
RLT_KINDS = (KIND.lower(), RUNTIME_KIND.lower())
SPECS: Mapping[str, type[ApiModel]] = {KIND: RLTrainingJobSpec, RUNTIME_KIND: RLRuntimeSpec}


@dataclass(frozen=True)
class Note:
    """A sentence about a line of a file."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class ValidatedFiles:
    """The RLTrainingJobs and RLRuntimes in some files."""

    documents: tuple[Document, ...]
    findings: tuple[tuple[Document, Finding], ...]
    """What is invalid, and in which document."""
    runtimes: Mapping[str, Mapping[str, Any]]
    """Name -> spec of each valid runtime."""
    notes: tuple[Note, ...]
    """What could not be validated, and settings that are probably a mistake."""
    policy: RuntimePolicy = ANY_RUNTIME
    """The policy for the runtimes of the jobs."""
    claims: tuple[Document, ...] = ()
    """The PersistentVolumeClaims of the jobs."""

    def jobs(self) -> list[Mapping[str, Any]]:
        """The manifests of the jobs, valid or invalid."""
        return [each.manifest for each in self.documents if each.manifest.get("kind") == KIND]

    def get_runtime_name(self, manifest: Mapping[str, Any]) -> str | None:
        """The name of a job's runtime, which may be the default. None if it has none."""
        return get_runtime_name(manifest, self.policy)

    def finding_lines(self) -> list[str]:
        """Each finding with its file and line."""
        return [_format_finding(document, finding) for document, finding in self.findings]


def _format_finding(document: Document, finding: Finding) -> str:
    place = f"{document.file}:{document.line_of(finding.field)}"
    if finding.value != document.file:
        return f"{place}: {finding}"
    # Of a file that cannot be read, the field is a place such as "line 3, column 5".
    within = LINE.sub("", finding.field)
    return ": ".join(filter(None, (place, within, f"{finding.message}; {finding.fix}")))


def drop_server_fields(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without status and the metadata that the API server sets, as in `kubectl get -o yaml`."""
    metadata = {key: manifest["metadata"][key] for key in USER_METADATA if key in manifest["metadata"]}
    return {key: value for key, value in {**manifest, "metadata": metadata}.items() if key != "status"}


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
        if not found and document.manifest["kind"] == KIND:
            found += [
                *validate_profile_name(document.manifest["spec"]),
                *validate_chat_template(document.manifest["spec"]),
                *_validate_model(document.manifest, runtimes, policy),
            ]
        findings += [(document, finding) for finding in found]
        if not found and document.manifest["kind"] == RUNTIME_KIND:
            runtimes[get_name(document.manifest)] = document.manifest["spec"]
    findings += _find_duplicates(own)
    jobs = dict(_resolve_jobs(own, runtimes, policy))
    notes = [note for document in others for note in _other_kind_notes(document, jobs)]
    notes += _missing_runtime_notes(own, runtimes, policy)
    notes += [note for document in own for note in _warning_notes(document, runtimes, policy)]
    findings.sort(key=lambda each: (own.index(each[0]), each[0].line_of(each[1].field)))
    names = {spec.storage.claim_name for spec in jobs.values()}
    claims = tuple(each for each in others if any(is_claim(each.manifest, name) for name in names))
    return ValidatedFiles(tuple(own), tuple(findings), runtimes, tuple(notes), policy, claims)


def get_name(manifest: Mapping[str, Any]) -> str:
    """The name of an object; with generateName one that the API server may generate."""
    metadata = manifest["metadata"]
    return str(metadata.get("name") or metadata["generateName"] + "x" * GENERATED_SUFFIX_LENGTH)


def _validate_model(
    manifest: Mapping[str, Any], runtimes: Mapping[str, Mapping[str, Any]], policy: RuntimePolicy
) -> Iterator[Finding]:
    """Validate the model of a job, with the fields of its runtime, if they are known."""
    resolved = validate_job("any", manifest["spec"], runtimes.get(get_runtime_name(manifest, policy) or "")).spec
    if resolved is not None:
        yield from validate_local_model(resolved)


def _find_duplicates(documents: Sequence[Document]) -> Iterator[tuple[Document, Finding]]:
    """Objects of one kind, namespace and name: the second would overwrite the first."""
    first: dict[tuple[str, ...], Document] = {}
    for document in documents:
        match document.manifest:
            case {"kind": str(kind), "metadata": {"name": str(name)} as metadata}:
                key = (kind, str(metadata.get("namespace")), name)
                other = first.setdefault(key, document)
                if other is not document:
                    message = f"is the name of another {kind} at {other.file}:{other.line}"
                    yield document, Finding("metadata.name", name, message, "use another name", rule="name")


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
    version = manifest.get("apiVersion")
    kind = manifest.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    return not version.startswith(GROUP) and not difflib.get_close_matches(kind.lower(), RLT_KINDS, cutoff=0.7)


def _resolve_jobs(
    documents: Sequence[Document], runtimes: Mapping[str, Mapping[str, Any]], policy: RuntimePolicy
) -> Iterator[tuple[str, RLTrainingJobSpec]]:
    """The names and resolved specs of the jobs whose types are valid and whose runtime is known."""
    for document in documents:
        match document.manifest:
            case {"kind": "RLTrainingJob", "metadata": dict(metadata), "spec": dict(spec)} if metadata:
                name = get_runtime_name(document.manifest, policy)
                known = name is None or name in runtimes
                resolved = validate_job("any", spec, runtimes.get(name or "")).spec if known else None
                if resolved is not None:
                    yield str(metadata.get("name") or metadata.get("generateName")), resolved


def _other_kind_notes(document: Document, jobs: Mapping[str, RLTrainingJobSpec]) -> Iterator[Note]:
    """Whether a PersistentVolumeClaim of a job is too small. Other objects are not validated."""
    manifest = document.manifest
    users = {name: spec for name, spec in jobs.items() if is_claim(manifest, spec.storage.claim_name)}
    for sentence in warn_small_claim(manifest, users):
        yield Note(document.file, document.line_of(SIZE), sentence)
    if not users:
        kind = f"{manifest['apiVersion']} {manifest['kind']}"
        yield Note(document.file, document.line, f"{kind} is not an rlt kind: not validated or submitted")


def _missing_runtime_notes(
    documents: Sequence[Document], runtimes: Mapping[str, object], policy: RuntimePolicy
) -> list[Note]:
    advice = " here; the cluster applies them" if policy.unknown else "; pass it with --runtime FILE"
    names = {document: get_runtime_name(document.manifest, policy) for document in documents}
    return [
        Note(
            document.file,
            document.line_of("spec.runtimeRef"),
            f"runtime {name} is not in the given files: rules that need it were not applied{advice}",
        )
        for document, name in names.items()
        if name is not None and name not in runtimes
    ]


def _warning_notes(
    document: Document, runtimes: Mapping[str, Mapping[str, Any]], policy: RuntimePolicy
) -> Iterator[Note]:
    """The warnings of rlt_api with file and line, also for a spec that a rule rejects. None if types or fields are
    invalid. Those about the whole spec need the runtime of the job."""
    manifest = document.manifest
    name = get_runtime_name(document.manifest, policy)
    match manifest:
        case {"kind": str(kind), "spec": dict(spec)} if kind in SPECS and not any(
            validate_structure(spec, SPECS[kind], "spec")
        ):
            pass
        case _:
            return
    sentences = [*warn_plain_secrets(spec), *warn_local_template(spec)]
    if kind == KIND and (name is None or name in runtimes):
        resolved = validate_job("any", spec, runtimes.get(name or "")).spec
        sentences += find_warnings(resolved) if resolved else ()
    for sentence in sentences:
        yield Note(document.file, document.line_of(sentence.partition(":")[0]), sentence)
