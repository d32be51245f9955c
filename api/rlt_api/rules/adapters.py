"""Adapters that the rollout engine applies itself."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import conflict, needs, replaceable
from rlt_api.spec.engine_options import MAX_LORA_RANKS
from rlt_api.spec.job_spec import RLTrainingJobSpec

SYNC = "spec.model.lora.syncAdapters"
RANK = "spec.model.lora.rank"
DORA = "spec.model.lora.useDora"
ENGINE = "spec.rollout.engine"
RULE = "synced-adapters"


def validate_synced_adapters(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """syncAdapters needs vLLM, which has neither DoRA nor adapters of a rank above 512."""
    lora = spec.model.lora if spec.model else None
    if lora is None or not lora.sync_adapters:
        return
    if spec.rollout.engine != "vllm":
        yield needs(SYNC, True, ENGINE, "vllm", rule=RULE)
    if lora.use_dora:
        message = "cannot be combined with useDora, which vLLM does not have"
        yield conflict(SYNC, True, DORA, message=message, rule=RULE)
    largest = MAX_LORA_RANKS[-1]
    if lora.rank > largest:
        message = f"is above {largest}, vLLM's largest rank"
        yield replaceable(RANK, lora.rank, message, largest, or_set={SYNC: None}, rule=RULE)


RULES = (validate_synced_adapters,)
