"""topP and topK beside a use of the engine's log-probabilities, which are those of the truncated distribution.

The trainer computes log-probabilities of all tokens. For equal weights, the ratio of its probability to the engine's is
the probability of the kept tokens: below 1, and with topP at least topP. So an importance weight is too small for each
token, and the product over a response goes to 0 with its length. With bypassMode, the ratio of the loss is below the
clip range for many tokens with equal weights, and the clip removes those with a negative advantage.

vLLM 0.32 can return the kept tokens (ModelConfig.return_sampling_mask), with the model runner of GPUs alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.finding import Finding, remove
from rlt_api.spec import RLTrainingJobSpec

CORRECTION = "spec.algorithm.rolloutCorrection"
TOP_P, TOP_K = "spec.rollout.topP", "spec.rollout.topK"


def find_truncation(spec: RLTrainingJobSpec) -> tuple[str, str] | None:
    """Return field and value that truncate the engine's distribution; None if all tokens can be sampled."""
    if spec.rollout.top_k > 0:
        return TOP_K, str(spec.rollout.top_k)
    return (TOP_P, f"{spec.rollout.top_p:g}") if spec.rollout.top_p < 1 else None


def validate_truncated_sampling(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """topP below 1 and topK cannot be combined with rolloutCorrection: its weights, its rejection and the ratio of
    bypassMode compare the truncated distribution with the full one. topP alone with weights for each token, without
    lowerThreshold, is a warning."""
    correction, truncation = spec.algorithm.rollout_correction, find_truncation(spec)
    if spec.framework.type != "builtin" or correction is None or truncation is None or is_bounded(spec):
        return
    if correction.bypass_mode:
        part, effect = "bypassMode", "the clip of the loss acts on equal weights"
    elif correction.rejection is not None:
        part, effect = "rejection", "tokens or responses are rejected with equal weights"
    elif correction.level == "none":
        return
    else:
        part, effect = "level", "the weights, and the gradient with them, are too small"
    field, value = truncation
    other = f"{CORRECTION}.{part}"
    yield Finding(
        field,
        value,
        f"cannot be combined with {other.removeprefix('spec.')}: the engine's log-probabilities are those of the "
        f"truncated distribution, and the trainer's are not, so that {effect}",
        "remove one of them",
        "truncated-sampling",
        (other, TOP_P, TOP_K),
        remove(field),
    )


def is_bounded(spec: RLTrainingJobSpec) -> bool:
    """Return whether the weights are too small by topP at most: a warning. Those of topK have no bound."""
    correction = spec.algorithm.rollout_correction
    return (
        correction is not None
        and spec.rollout.top_k <= 0
        and correction.level == "token"
        and correction.lower_threshold is None
        and correction.rejection is None
        and not correction.bypass_mode
    )


RULES = (validate_truncated_sampling,)
