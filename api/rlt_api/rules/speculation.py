"""Speculative decoding of the rollout engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import above, conflict, needs
from rlt_api.spec.job_spec import RLTrainingJobSpec

CONFIG = "spec.rollout.speculativeConfig"
LOOKUP_MIN = f"{CONFIG}.promptLookupMin"
LOOKUP_MAX = f"{CONFIG}.promptLookupMax"
MIN_P = "spec.rollout.minP"
SYNC = "spec.model.lora.syncAdapters"
RULE = "speculation"


def validate_prompt_lookup(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """promptLookupMin must not be more than promptLookupMax. Otherwise vLLM does not start."""
    config = spec.rollout.speculative_config
    if config is None or config.prompt_lookup_min is None:
        return
    low = config.prompt_lookup_min
    high = config.prompt_lookup_max
    if low > high:
        yield above(LOOKUP_MIN, low, high, f"promptLookupMax {high}", rule=RULE, involved=(LOOKUP_MAX,))


def validate_speculation(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """speculativeConfig needs vLLM, which rejects requests with min_p beside it (sampling_params.py,
    _validate_spec_decode). It is not tested with syncAdapters, where vLLM applies adapters to the proposed tokens."""
    config = spec.rollout.speculative_config
    if config is None:
        return
    if spec.rollout.engine != "vllm":
        yield needs(CONFIG, config.method, "spec.rollout.engine", "vllm", rule=RULE)
    if spec.rollout.min_p > 0:
        message = "cannot be combined with rollout.minP: vLLM rejects such requests"
        fix = "use minP 0, or remove speculativeConfig"
        edits = ({MIN_P: 0}, {CONFIG: None})
        yield Finding(CONFIG, config.method, message, fix, rule=RULE, involved=(MIN_P,), edits=edits)
    if spec.model is not None and spec.model.lora is not None and spec.model.lora.sync_adapters:
        yield conflict(CONFIG, config.method, SYNC, rule=RULE)


RULES = (validate_prompt_lookup,)
BUILTIN_RULES = (validate_speculation,)
