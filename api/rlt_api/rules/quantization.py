"""Quantized weights of the rollout engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Edit, Finding, remove
from rlt_api.spec.job_spec import RLTrainingJobSpec

QUANTIZATION, ENGINE, DTYPE, SYNC = (
    "spec.rollout.quantization",
    "spec.rollout.engine",
    "spec.model.dtype",
    "spec.model.lora.syncAdapters",
)


def validate_quantization(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rollout.quantization needs vLLM, which quantizes the weights of a bfloat16 model in each weight sync. With
    syncAdapters the weights below the adapters are not in the sync, so that it could not verify them."""
    value, model = spec.rollout.quantization, spec.model
    if spec.framework.type != "builtin" or value is None:
        return
    if spec.rollout.engine != "vllm":
        edits = ({ENGINE: "vllm"}, *remove(QUANTIZATION))
        yield _build_finding(value, "requires rollout.engine: vllm", "use vllm", ENGINE, edits)
    if model is not None and model.dtype != "bfloat16":
        edits = ({DTYPE: "bfloat16"}, *remove(QUANTIZATION))
        yield _build_finding(value, "requires model.dtype: bfloat16", "use bfloat16", DTYPE, edits)
    if model is not None and model.lora is not None and model.lora.sync_adapters:
        edits = (*remove(SYNC), *remove(QUANTIZATION))
        message = "cannot be combined with model.lora.syncAdapters"
        yield _build_finding(value, message, "remove syncAdapters", SYNC, edits)


def _build_finding(value: str, message: str, fix: str, other: str, edits: tuple[Edit, ...]) -> Finding:
    fix = f"{fix}, or remove quantization"
    return Finding(QUANTIZATION, value, message, fix, "quantization", (other,), edits)


RULES = (validate_quantization,)
