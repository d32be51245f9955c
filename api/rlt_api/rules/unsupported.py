"""Fields of a spec that another framework cannot take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlt_api.findings.finding import Finding, remove
from rlt_api.spec.job_spec import RLTrainingJobSpec

TYPE = "spec.framework.type"
REMOVE = "remove it, or use framework.type: builtin"

Unsupported = tuple[str, bool, str, str]
"""Path of a field, whether the spec gives it, why the framework cannot take it, and what to do."""


def build_findings(spec: RLTrainingJobSpec, entries: Iterable[Unsupported]) -> Iterator[Finding]:
    """Build a finding for each field that the spec gives."""
    framework = spec.framework.type
    rule = f"framework-{framework}"
    for field, is_given, reason, fix in entries:
        if is_given:
            message = f"is not supported by framework {framework}: {reason}"
            edits = remove(field) if fix == REMOVE else ()
            yield Finding(field, "given", message, fix, rule=rule, involved=(TYPE,), edits=edits)


def list_model(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    """The fields of spec.model that only the builtin trainer has."""
    model = spec.model
    if not model:
        return
    yield "spec.model.fromSeed", model.from_seed is not None, "it loads existing weights", "use model.path"
    reason = "it loads the newest revision"
    fix = "copy the revision to a volume, and use its path"
    yield "spec.model.revision", model.revision is not None, reason, fix
    yield "spec.model.castLmHeadToFp32", model.cast_lm_head_to_fp32, "it has no option for it", REMOVE
    lora = model.lora
    reason = "its adapters are plain LoRA"
    yield "spec.model.lora.useRslora", bool(lora and lora.use_rslora), reason, REMOVE
    yield "spec.model.lora.useDora", bool(lora and lora.use_dora), reason, REMOVE
    reason = "it chooses what a weight sync sends"
    yield "spec.model.lora.syncAdapters", bool(lora and lora.sync_adapters), reason, REMOVE
