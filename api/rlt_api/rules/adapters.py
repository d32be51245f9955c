"""Adapters that the rollout engine applies itself."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, remove, use
from rlt_api.spec.engine_options import MAX_LORA_RANKS
from rlt_api.spec.job_spec import RLTrainingJobSpec

SYNC, RANK, DORA, ENGINE = (
    "spec.model.lora.syncAdapters",
    "spec.model.lora.rank",
    "spec.model.lora.useDora",
    "spec.rollout.engine",
)


def validate_synced_adapters(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """syncAdapters needs vLLM, which has neither DoRA nor adapters of a rank above 512."""
    lora, rule = spec.model.lora if spec.model else None, "synced-adapters"
    if spec.framework.type != "builtin" or lora is None or not lora.sync_adapters:
        return
    if spec.rollout.engine != "vllm":
        message, edits = "requires rollout.engine: vllm", ({ENGINE: "vllm"}, *remove(SYNC))
        yield Finding(SYNC, "true", message, "use vllm, or remove syncAdapters", rule, (ENGINE,), edits)
    if lora.use_dora:
        message, edits = "cannot be combined with useDora, which vLLM does not have", remove(SYNC, DORA)
        yield Finding(SYNC, "true", message, "remove one of them", rule, (DORA,), edits)
    largest = MAX_LORA_RANKS[-1]
    if lora.rank > largest:
        message, edits = f"is above {largest}, vLLM's largest rank", (*use(RANK, largest), *remove(SYNC))
        yield Finding(RANK, str(lora.rank), message, f"use {largest}, or remove syncAdapters", rule, (SYNC,), edits)


RULES = (validate_synced_adapters,)
