"""Sources in YAML: which of the documents is the job, and in which format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlt.convert.configs import convert_hydra, is_verl
from rlt.convert.draft import ConvertError, Draft
from rlt.convert.framework_configs import convert_framework_config, find_framework
from rlt.convert.manifests import convert_manifest, is_manifest, list_kinds
from rlt.convert.reader import Json, show
from rlt.convert.roll import convert_roll, is_roll
from rlt.convert.tasks import convert_dstack, convert_skypilot, is_dstack, is_skypilot
from rlt.manifest_files import Document

WORD = "in YAML, not a string"
"""Part of the message about a key such as n, which kubectl reads as false."""
Converter = Callable[[Draft, Json, str, str], None]


def convert_documents(documents: Sequence[Document], file: str, to: str) -> Draft:
    """Convert the first document with a program, or the first one of a known format. Comments name the others."""
    drafts = []
    for document in documents:
        converter = _find_converter(document.manifest, to)
        if converter:
            drafts.append((document, _convert(converter, document, file, to)))
    if not drafts:
        raise ConvertError(_describe_unknown(documents, file))
    chosen, draft = next((each for each in drafts if each[1].get("framework.type") or each[1].get("model")), drafts[0])
    for each in documents:
        if each is not chosen:
            draft.leave_out(*_describe_other(each, is_job=any(each is other for other, _ in drafts)), each.line)
    for finding in chosen.findings:
        if WORD in finding.message and not is_manifest(chosen.manifest):
            continue  # OmegaConf reads y and n as text
        draft.leave_out(f"{finding.field} {finding.value}", finding.message, chosen.line_of(finding.field))
    return draft


def _find_converter(document: Any, to: str) -> Converter | None:
    """The converter of a document. Raises ConvertError if the target does not fit it."""
    if is_manifest(document):
        if to != "command":
            raise ConvertError(f"line 1: {document['kind']} has no settings of a training: use --to command.")
        return lambda draft, value, file, to: convert_manifest(draft, value)
    if to == "roll" and not is_roll(document):
        return None
    if is_dstack(document):
        return convert_dstack
    if is_skypilot(document):
        return convert_skypilot
    if is_roll(document):
        _reject_verl(to, "a config of ROLL")
        return convert_roll
    if is_verl(document):
        _reject_verl(to, "a config of verl")
        return convert_hydra
    if framework := find_framework(document):
        if to != "command":
            raise ConvertError(f"line 1: mapping.toml has no settings of {framework}: use --to command.")
        return convert_framework_config
    return None


def _reject_verl(to: str, what: str) -> None:
    if to == "verl":
        raise ConvertError(f"line 1: {what} is not a command line or script of verl: use --to command or builtin.")


def _convert(converter: Converter, document: Document, file: str, to: str) -> Draft:
    draft = Draft(lines=document.lines)
    try:
        converter(draft, dict(document.manifest), file, to)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConvertError):
            raise
        name = document.manifest.get("kind") or document.manifest.get("type") or "config"
        raise ConvertError(
            f"line {document.line}: the {name} has a field of another type ({error}): correct it, for a resource with "
            "kubectl apply --dry-run=server."
        ) from error
    return draft


def _describe_other(document: Document, *, is_job: bool) -> tuple[str, str]:
    manifest = document.manifest
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else manifest.get("name")
    kind = manifest.get("kind") or manifest.get("type") or "document"
    why = (
        "one job is converted: pass it alone" if is_job else f"it is not a job: use it beside the job {show(manifest)}"
    )
    return f"{kind} {name or ''}".strip(), why


def _describe_unknown(documents: Sequence[Document], file: str) -> str:
    keys = ", ".join(map(str, [*documents[0].manifest][:8]))
    known = ("kind", "type", "apiVersion")
    named = "".join(f" ({key}: {show(documents[0].manifest[key])})" for key in known if key in documents[0].manifest)
    return (
        f"line {documents[0].line}: {file} is YAML with the keys {keys}{named}, and none of the formats: a manifest of "
        f"kind {list_kinds()}, a task of dstack (type: task) or SkyPilot (run, resources), a config of verl "
        "(actor_rollout_ref), of ROLL (actor_train, student, sft_train), of NeMo-RL (policy, cluster), of SkyRL "
        "(trainer, generator) or of TRL (model_name_or_path)."
    )
