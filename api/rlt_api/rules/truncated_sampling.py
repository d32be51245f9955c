"""topP, topK and minP with the rollout correction.

Engines report log-probabilities under the truncated distribution, and the trainer computes them under the full one.
With equal weights, their ratio is the kept mass: the total probability of the tokens that are kept. It is at least
topP. topK and minP have no lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, log

from rlt_api.blocks.algorithm import Rejection
from rlt_api.findings.finding import Edit, Finding
from rlt_api.spec.job_spec import RLTrainingJobSpec

TOP_P = "spec.rollout.topP"
TOP_K = "spec.rollout.topK"
MIN_P = "spec.rollout.minP"
CORRECTION = "spec.algorithm.rolloutCorrection"
ALL = {TOP_P: 1, TOP_K: -1, MIN_P: 0}
"""The values that keep all tokens."""
CLIP = tuple(f"spec.algorithm.{name}" for name in ("policyLoss", "clipRatio", "clipRatioLow"))
CLIPPED_LOSSES = ("vanilla", "gspo")
"""Values of policyLoss without a gradient for ratios below 1 - clipRatioLow, if the advantage is negative."""


def validate_truncated_sampling(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With topP below 1, topK or minP, the engine reports other probabilities than the trainer computes, also for equal
    weights. rolloutCorrection then has importance weights near 0 (level sequence), removes valid tokens (rejection,
    lowerThreshold), or the gradient of tokens with negative advantages (bypassMode). level token is a warning."""
    given = _list_truncations(spec)
    if not given:
        return
    field, *others = given
    value = f"{given[field]:g}"
    keep_all: Edit = {path: ALL[path] for path in given}
    for reason, remedy, edit, fields in _list_conflicts(spec):
        message = f"makes the engine report the probabilities among the kept tokens alone, so that {reason}"
        fix = f"use {_name_all(given)}, or {remedy}"
        involved = (*others, *fields)
        edits = (keep_all, edit)
        yield Finding(field, value, message, fix, rule="truncated-sampling", involved=involved, edits=edits)


def warn_truncated_sampling(spec: RLTrainingJobSpec) -> Iterator[str]:
    """The rollout correction has ratios that contain the kept mass, and are not wrong enough for an error."""
    given = _list_truncations(spec)
    correction = spec.algorithm.rollout_correction
    if not given or correction is None or next(_list_conflicts(spec), None):
        return
    if not correction.bypass_mode and correction.level == "none" and correction.rejection is None:
        return
    field, value = next(iter(given.items()))
    ratio = "the ratio of the loss" if correction.bypass_mode else "the ratio of rolloutCorrection"
    bound = f"from {value:g} to 1" if _min_ratio(spec) else "below 1"
    yield (
        f"{field}: {value:g}: the engine reports the probabilities among the kept tokens alone, and the trainer those "
        f"among all, so that {ratio} is {bound} where both agree; use {_name_all(given)}"
    )


def _list_conflicts(spec: RLTrainingJobSpec) -> Iterator[tuple[str, str, Edit, tuple[str, ...]]]:
    """Yield why the correction is wrong with a truncation, what to do about it, as an edit too, and the fields."""
    algorithm = spec.algorithm
    correction = algorithm.rollout_correction
    if correction is None:
        return
    if correction.bypass_mode:
        low = algorithm.clip_ratio if algorithm.clip_ratio_low is None else algorithm.clip_ratio_low
        is_clipped = algorithm.policy_loss_function is None and algorithm.policy_loss in CLIPPED_LOSSES
        if is_clipped and _min_ratio(spec) < 1 - low:
            reason = f"ratios start below the clip at {1 - low:g}, and negative advantages have no gradient there"
            field = f"{CORRECTION}.bypassMode"
            yield reason, "bypassMode false", {field: False}, (field, *CLIP)
        return
    if correction.level == "sequence":
        reason = "the product of their total probability over a response approaches 0, and so does the gradient"
        field = f"{CORRECTION}.level"
        yield reason, "rolloutCorrection.level token", {field: "token"}, (field,)
    if correction.level == "token" and _min_ratio(spec) < (correction.lower_threshold or 0):
        reason = f"weights are below lowerThreshold {correction.lower_threshold:g} where engine and trainer agree"
        field = f"{CORRECTION}.lowerThreshold"
        yield reason, "remove lowerThreshold", {field: None}, (field,)
    if correction.rejection is not None and _can_reject(spec, correction.rejection, correction.rejection_threshold):
        reason = f"rejection {correction.rejection} compares their total probability with rejectionThreshold"
        field = f"{CORRECTION}.rejection"
        yield reason, "remove rejection", {field: None, f"{field}Threshold": None}, (field, f"{field}Threshold")


def _can_reject(spec: RLTrainingJobSpec, rejection: Rejection, threshold: float | None) -> bool:
    """Whether the kept mass alone can exceed the threshold. Formulas: rlt_trainer/algorithms/rollout_correction.py."""
    level, _, kind = rejection.rpartition("_")
    if threshold is None or _min_ratio(spec) == 0:
        return threshold is not None
    x = log(_min_ratio(spec))
    statistic = {"k1": -x, "k2": x * x / 2, "k3": exp(x) - 1 - x}[kind]
    tokens = spec.data.max_response_length if level == "seq_sum" and spec.data else 1
    return statistic * tokens > (log(threshold) if kind == "k1" else threshold)


def _list_truncations(spec: RLTrainingJobSpec) -> dict[str, float]:
    """Return the fields that truncate the distribution, and their values."""
    rollout = spec.rollout
    given = {
        TOP_P: rollout.top_p if rollout.top_p < 1 else None,
        TOP_K: rollout.top_k if rollout.top_k > 0 else None,
        MIN_P: rollout.min_p if rollout.min_p > 0 else None,
    }
    return {field: value for field, value in given.items() if value is not None}


def _name_all(given: Iterable[str]) -> str:
    return " and ".join(f"{field.rpartition('.')[2]} {ALL[field]}" for field in given)


def _min_ratio(spec: RLTrainingJobSpec) -> float:
    """Return a lower bound of a token's kept mass."""
    rollout = spec.rollout
    return 0.0 if rollout.top_k > 0 or rollout.min_p > 0 else rollout.top_p


RULES = (validate_truncated_sampling,)
