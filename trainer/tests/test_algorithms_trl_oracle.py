"""In TRL's convention the results equal TRL 1.16.0's, except as documented in docs/algorithms.md."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Dpo
from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs, place_at_last_token
from rlt_trainer.algorithms.aggregation import AggregationMode, aggregate
from rlt_trainer.algorithms.conventions import ConventionName
from rlt_trainer.algorithms.kl_controller import apply_kl_penalty
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs, distillation_advantages, kl_loss
from rlt_trainer.algorithms.masking import row_sums
from rlt_trainer.algorithms.preferences import dpo_loss
from rlt_trainer.algorithms.top_entropy import select_top_entropy

FOLDER = Path(__file__).parent / "oracles"
ORACLE: dict[str, Any] = json.loads((FOLDER / "trl.json").read_text())
INPUTS: dict[str, Tensor] = {
    name: torch.tensor(values, dtype=torch.float64)
    for name, values in json.loads((FOLDER / "verl.json").read_text())["inputs"].items()
}
MASK = INPUTS["mask"].bool()
LOSSES = {"cispo": "cispo", "sapo": "sapo"}
"""Policy loss by TRL's loss_type. Default: vanilla."""
MODES: dict[str, AggregationMode] = {
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "dapo": "token-mean",
    "cispo": "token-mean",
    "sapo": "seq-mean-token-mean",
    "luspo": "seq-mean-token-sum",
}


def close(actual: Tensor, expected: Any) -> None:
    assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


SCORES = torch.tensor([math.nan if reward is None else reward for reward in ORACLE["rewards"]], dtype=torch.float64)
GROUPS = torch.arange(len(SCORES)) // 4
SCORED = SCORES.isfinite()[:, None]
"""[B, 1]: False for a response whose reward failed; it is excluded from learning."""


def advantages(case: dict[str, Any], convention: ConventionName) -> Tensor:
    token_rewards = place_at_last_token(SCORES, SCORED)
    inputs = AdvantageInputs(token_rewards, SCORED, GROUPS, convention=convention, **case["settings"])
    return ESTIMATORS[case["estimator"]](inputs).advantages[:, 0]


@pytest.mark.parametrize("case", ORACLE["advantages"], ids=lambda case: f"{case['estimator']}-{case['settings']}")
def test_advantages(case: dict[str, Any]) -> None:
    close(advantages(case, "trl"), case["advantages"])


def test_kl_in_the_reward() -> None:
    case = ORACLE["kl_in_reward"]
    mask = torch.tensor(case["mask"]) & SCORED
    penalty = apply_kl_penalty(
        place_at_last_token(SCORES, mask),
        log_probs=torch.tensor(case["log_probs"], dtype=torch.float64),
        ref_log_probs=torch.tensor(case["ref_log_probs"], dtype=torch.float64),
        mask=mask,
        coefficient=case["beta"],
        estimator="kl",
        convention="trl",
    )
    ours = ESTIMATORS["rloo"](AdvantageInputs(penalty.token_rewards, mask, GROUPS, convention="trl")).advantages
    close(ours, mask * torch.tensor(case["advantages"], dtype=torch.float64)[:, None])


def test_the_conventions_differ_in_epsilon_and_for_a_response_alone_in_its_group() -> None:
    case = ORACLE["advantages"][0]
    ours = advantages(case, "verl")
    theirs = torch.tensor(case["advantages"], dtype=torch.float64)
    deviation = torch.tensor([0.0, 1.0, 1.0, 0.25], dtype=torch.float64).std()
    close(ours[:4] * (deviation + 1e-6), theirs[:4] * (deviation + 1e-4))
    assert [ours[13].item(), theirs[13].item()] == [0.0, 0.0]  # the other three rewards failed
    only = torch.tensor([[3.0]]), torch.tensor([[True]]), torch.tensor([0])
    scores = [ESTIMATORS["grpo"](AdvantageInputs(*only, convention=each)).advantages.item() for each in ("verl", "trl")]
    assert scores == [pytest.approx(3.0, rel=1e-5), 0.0]  # 3.0 / (1 + 1e-6)


TOP_ENTROPY = ORACLE["top_entropy"]
ENTROPIES = torch.tensor(TOP_ENTROPY["entropies"], dtype=torch.float64)


def select(share: float, rows: slice = slice(None)) -> Tensor:
    mask = MASK[rows]
    return select_top_entropy(ENTROPIES[rows], mask, torch.zeros(len(mask)), share)[0]


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9])
def test_the_tokens_with_the_highest_entropy(share: float) -> None:
    assert select(share).tolist() == TOP_ENTROPY["masks"][str(share)]


@pytest.mark.parametrize(
    "case",
    TOP_ENTROPY["losses"],
    ids=lambda case: "-".join(str(case[key]) for key in ("loss_type", "quantile", "beta", "weighted")),
)
def test_losses_of_the_tokens_with_the_highest_entropy(case: dict[str, Any]) -> None:
    value, gradient = loss(case, "trl", select(case["quantile"]))
    close(value, case["value"])
    close(gradient, case["gradient"])


def loss(case: dict[str, Any], convention: ConventionName, selected: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the loss with TRL's settings, and its gradient. `selected`: the tokens of the policy loss."""
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    weights = INPUTS["weights"] if case["weighted"] else torch.ones_like(log_probs)
    inputs = LossInputs(
        log_probs,
        INPUTS[case["old"]],
        INPUTS["advantages"][:, :1].expand(MASK.shape),
        MASK,
        weights=weights if selected is None else weights * selected,
        clip_ratio_low=0.1,
        clip_ratio_high=5.0 if case["loss_type"] == "cispo" else 0.3,
        clip_ratio_c=case.get("delta"),
        convention=convention,
    )
    name = "gspo" if case["level"] == "sequence" else LOSSES.get(case["loss_type"], "vanilla")
    per_token = POLICY_LOSSES[name](inputs).loss + case["beta"] * kl_loss(inputs, INPUTS["ref_log_probs"])
    value = aggregate(
        per_token,
        MASK,
        MODES[case["loss_type"]],
        total_tokens=int(MASK.sum()),
        total_sequences=len(MASK),
        loss_scale_factor=ORACLE["length"],
    )
    value.backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    return value.detach(), log_probs.grad


@pytest.mark.parametrize("case", ORACLE["losses"], ids=lambda case: "-".join(str(case[key]) for key in list(case)[:5]))
def test_losses(case: dict[str, Any]) -> None:
    value, gradient = loss(case, "trl")
    close(value, case["value"])
    if not (case["level"] == "sequence" and case["weighted"]):  # see test_trl_spreads_the_gspo_gradient...
        close(gradient, case["gradient"])


def test_the_expected_gradient_of_the_distillation_loss_equals_gkds_reverse_kl() -> None:
    """The expectation over the token that the policy samples, for each of the positions."""
    case = ORACLE["distillation"]
    logits, teacher = (torch.tensor(case[name], dtype=torch.float64) for name in ("student", "teacher"))
    logits.requires_grad_()
    log_probs, teacher_log_probs = (each.div(case["temperature"]).log_softmax(-1) for each in (logits, teacher))
    every = torch.ones_like(log_probs, dtype=torch.bool)
    advantages = distillation_advantages(log_probs, teacher_log_probs, every, max_clamp=100.0)
    probabilities = log_probs.detach().exp()
    close(-(probabilities * advantages).sum(), case["value"])
    losses = POLICY_LOSSES["vanilla"](LossInputs(log_probs, log_probs.detach(), advantages, every)).loss
    (probabilities * losses).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    close(logits.grad, case["gradient"])


def test_preferences_have_dpos_loss_and_metrics() -> None:
    case = ORACLE["preferences"]
    assert Dpo().beta == case["beta"]
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    policy, reference = (row_sums(each, MASK).chunk(2) for each in (log_probs, INPUTS["ref_log_probs"]))
    preferences = dpo_loss(*policy, *reference, beta=case["beta"])
    preferences.loss.mean().backward()  # type: ignore[no-untyped-call]
    close(preferences.loss.mean().detach(), case["value"])
    assert log_probs.grad is not None
    close(log_probs.grad, case["gradient"])
    metrics = {name: float(each.mean()) for name, each in preferences.metrics().items()}
    assert metrics == pytest.approx({"loss": case["value"], **case["metrics"]}, rel=1e-5)


def differing(**wanted: Any) -> tuple[Tensor, dict[str, Any]]:
    """Return the loss in verl's convention, and the matching case of TRL."""
    case = next(case for case in ORACLE["losses"] if wanted.items() <= case.items())
    return loss(case, "verl")[0], case


def test_the_conventions_differ_in_the_ratio_on_the_kl_term() -> None:
    assert ORACLE["bias_correction"]
    wanted = {"loss_type": "dapo", "level": "token", "old": "old_log_probs", "weighted": False}
    ours, case = differing(beta=0.04, **wanted)
    without, _ = differing(beta=0.0, **wanted)
    ratio = (INPUTS["log_probs"] - INPUTS["old_log_probs"]).exp()
    x = INPUTS["ref_log_probs"] - INPUTS["log_probs"]
    divergence = x.exp() - x - 1
    close(ours - without, 0.04 * divergence[MASK].mean())
    close(case["value"] - without, 0.04 * (divergence * ratio)[MASK].mean())


def test_the_conventions_differ_in_the_bound_of_the_log_ratio() -> None:
    ours, case = differing(loss_type="dapo", level="token", old="far_log_probs", beta=0.0, weighted=False)
    # the first token of row 7 has ratio e^25 and a negative advantage: no clip applies
    log_ratio = (INPUTS["log_probs"] - INPUTS["far_log_probs"])[7, 0]
    difference = -INPUTS["advantages"][7, 0] * (log_ratio.exp() - math.exp(20)) / MASK.sum()
    assert log_ratio > 24
    close(case["value"] - ours, difference)


def test_trl_spreads_the_gspo_gradient_over_the_response() -> None:
    wanted = {"loss_type": "dapo", "level": "sequence", "weighted": True}
    case = next(case for case in ORACLE["losses"] if wanted.items() <= case.items())
    value, gradient = loss(case, "trl")
    close(value, case["value"])
    spread = gradient.sum(-1, keepdim=True) / MASK.sum(-1, keepdim=True)
    close(spread * MASK, case["gradient"])


@pytest.mark.parametrize(("convention", "weights"), [("verl", [6.0, 0.9]), ("trl", [5.0, 0.05])])
def test_the_upper_clip_of_cispo_is_a_distance_in_verl_and_a_bound_in_trl(
    convention: ConventionName, weights: list[float]
) -> None:
    log_probs = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    old = -torch.tensor([[10.0, 0.05]], dtype=torch.float64).log()
    clip: dict[str, Any] = {"clip_ratio_low": 0.1, "clip_ratio_high": 5.0, "convention": convention}
    ones = torch.ones_like(old)
    POLICY_LOSSES["cispo"](LossInputs(log_probs, old, ones, ones.bool(), **clip)).loss.sum().backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    close(-log_probs.grad[0], weights)
