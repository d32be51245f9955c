"""Quantized weights of the rollout engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, remove
from rlt_api.findings.kinds import needs
from rlt_api.spec.job_spec import RLTrainingJobSpec

QUANTIZATION = "spec.rollout.quantization"
ENGINE = "spec.rollout.engine"
DTYPE = "spec.model.dtype"
SYNC = "spec.model.lora.syncAdapters"
RULE = "quantization"


def validate_quantization(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rollout.quantization needs vLLM, which quantizes the weights of a bfloat16 model in each weight sync. With
    syncAdapters the weights below the adapters are not in the sync, so that it could not verify them."""
    value = spec.rollout.quantization
    model = spec.model
    if value is None:
        return
    if spec.rollout.engine != "vllm":
        yield needs(QUANTIZATION, value, ENGINE, "vllm", rule=RULE)
    if model is not None and model.dtype != "bfloat16":
        yield needs(QUANTIZATION, value, DTYPE, "bfloat16", rule=RULE)
    if model is not None and model.lora is not None and model.lora.sync_adapters:
        message = "cannot be combined with model.lora.syncAdapters"
        fix = "remove syncAdapters, or remove quantization"
        edits = remove(SYNC, QUANTIZATION)
        yield Finding(QUANTIZATION, value, message, fix, rule=RULE, involved=(SYNC,), edits=edits)


RULES = (validate_quantization,)
