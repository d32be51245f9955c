"""The results equal verl 0.9.1's, recorded by trainer/oracles/make_fixtures.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs
from rlt_trainer.algorithms.aggregation import aggregate
from rlt_trainer.algorithms.covariance import choose_between, choose_highest, select_by_covariance
from rlt_trainer.algorithms.kl import kl_divergence
from rlt_trainer.algorithms.kl_controller import KlController, apply_kl_penalty
from rlt_trainer.algorithms.losses import (
    POLICY_LOSSES,
    LossInputs,
    distillation_advantages,
    forward_kl_topk,
    value_loss,
)
from rlt_trainer.algorithms.masking import masked_sum
from rlt_trainer.algorithms.rollout_correction import compute_mismatch_metrics, correct_rollout

ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "oracles/verl.json").read_text())
INPUTS = {
    name: torch.tensor(values, dtype=torch.float64 if isinstance(values[0], list) else None)
    for name, values in ORACLE["inputs"].items()
}
MASK = INPUTS["mask"].bool()
TOKENS = int(MASK.sum())
SEQUENCES = len(MASK)


def close(actual: Tensor | float, expected: Any) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert_close(torch.as_tensor(actual, dtype=torch.float64), expected, rtol=1e-6, atol=1e-6)


def estimate(case: dict[str, Any], **changes: Any) -> tuple[Tensor, Tensor]:
    inputs = AdvantageInputs(
        INPUTS["token_rewards"],
        MASK,
        INPUTS[case["groups"]].long(),
        values=INPUTS["values"],
        baselines=INPUTS["baselines"].double(),
        **case["settings"],
        **changes,
    )
    result = ESTIMATORS[case["estimator"].removesuffix("_vectorized")](inputs)
    return result.advantages, result.returns


def oracle_advantages(estimator: str) -> dict[str, Any]:
    return next(case for case in ORACLE["advantages"] if case["estimator"] == estimator)


@pytest.mark.parametrize(
    "case",
    [case for case in ORACLE["advantages"] if not case["estimator"].endswith("_vectorized")],
    ids=lambda case: f"{case['estimator']}-{case['settings']}",
)
def test_advantages(case: dict[str, Any]) -> None:
    advantages, returns = estimate(case)
    # verl's gae has nonzero values outside the mask, which its losses mask; here they are 0
    close(advantages, torch.tensor(case["advantages"]).where(MASK, 0))
    close(returns, torch.tensor(case["returns"]).where(MASK, 0))


@pytest.mark.parametrize("estimator", ["grpo_vectorized", "rloo_vectorized"])
def test_verls_vectorized_forms_differ_only_for_a_response_alone_in_its_group(estimator: str) -> None:
    case = oracle_advantages(estimator)
    ours = estimate(case)[0]
    theirs = torch.tensor(case["advantages"], dtype=torch.float64)
    alone = torch.tensor([row == 4 for row in range(SEQUENCES)])
    close(ours[~alone], theirs[~alone])
    if estimator == "rloo_vectorized":
        assert not theirs[alone].any()
        close(ours[alone], estimate({**case, "estimator": "grpo"}, norm_by_std=False)[0][alone])  # its score


@pytest.mark.parametrize(
    "case", ORACLE["losses"], ids=lambda c: f"{c['name']}-{c['mode']}-{c['old']}-{'weighted' if c['weighted'] else ''}"
)
def test_policy_losses(case: dict[str, Any]) -> None:
    low, high, c = case["clip"]
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    inputs = LossInputs(
        log_probs,
        INPUTS[case["old"]],
        INPUTS["advantages"],
        MASK,
        weights=INPUTS["weights"] if case["weighted"] else None,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=c,
    )
    result = POLICY_LOSSES[case["name"]](inputs)
    loss = aggregate(result.loss, MASK, case["mode"], total_tokens=TOKENS, total_sequences=SEQUENCES)
    loss.backward()  # type: ignore[no-untyped-call]
    close(loss.detach(), case["value"])
    assert log_probs.grad is not None
    close(log_probs.grad, case["gradient"])
    assert result.metrics.keys() == case["metrics"].keys()
    for name, expected in case["metrics"].items():
        close(masked_sum(result.metrics[name], MASK) / TOKENS, expected)


@pytest.mark.parametrize(
    "case", ORACLE["covariances"], ids=lambda c: f"{c['name']}-{c['mode']}-{c['old']}-{c['clip'][0]}-{c['share']}"
)
def test_covariance_losses(case: dict[str, Any]) -> None:
    """verl excludes clipped tokens from the choice of clip_cov. Their gradient is 0 either way."""
    low, high = case["clip"]
    is_random = case["name"] == "clip_cov" and case["share"] < 1
    is_clipped = case["name"] == "clip_cov" and case["old"] != "log_probs" and low == 0.1
    choose = choose_between(case["low"], case["high"], np.random.default_rng(0))
    if case["name"] == "kl_cov":
        choose = choose_highest
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    groups = torch.zeros(SEQUENCES)
    share = 1.0 if is_random else case["share"]
    candidates = select_by_covariance(INPUTS["advantages"], log_probs.detach(), MASK, groups, share, choose)
    gradient = torch.tensor(case["gradient"], dtype=torch.float64)
    selected = candidates & (gradient == 0) if is_random else candidates  # those that verl's random numbers select
    inputs = LossInputs(
        log_probs,
        INPUTS[case["old"]],
        INPUTS["advantages"],
        MASK,
        weights=INPUTS["weights"],
        is_selected=selected,
        clip_ratio_low=low,
        clip_ratio_high=high,
        ppo_kl_coef=case["coef"],
    )
    result = POLICY_LOSSES[case["name"]](inputs)
    loss = aggregate(result.loss, MASK, case["mode"], total_tokens=TOKENS, total_sequences=SEQUENCES)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    close(log_probs.grad, gradient)
    close(masked_sum(result.metrics["actor/ppo_kl"], MASK) / TOKENS, case["metrics"]["actor/ppo_kl"])
    assert result.metrics.keys() == case["metrics"].keys()
    if is_clipped:
        return
    close(loss.detach(), case["value"])
    if case["name"] == "clip_cov":
        close(masked_sum(result.metrics["actor/pg_clipfrac"], MASK) / TOKENS, case["metrics"]["actor/pg_clipfrac"])
        ours = select_by_covariance(INPUTS["advantages"], log_probs.detach(), MASK, groups, case["share"], choose)
        assert int(ours.sum()) == int(selected.sum())


@pytest.mark.parametrize("case", ORACLE["bypassed"], ids=lambda case: case["mode"])
def test_bypass_mode_has_the_loss_of_the_engines_log_probabilities(case: dict[str, Any]) -> None:
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    inputs = LossInputs(
        log_probs,
        INPUTS["rollout_log_probs"],
        INPUTS["advantages"],
        MASK,
        clip_ratio_low=0.2,
        clip_ratio_high=0.3,
        clip_ratio_c=3.0,
    )
    per_token = POLICY_LOSSES["vanilla"](inputs).loss
    loss = aggregate(per_token, MASK, case["mode"], total_tokens=TOKENS, total_sequences=SEQUENCES)
    loss.backward()  # type: ignore[no-untyped-call]
    close(loss.detach(), case["value"])
    assert log_probs.grad is not None
    close(log_probs.grad, case["gradient"])


@pytest.mark.parametrize("case", ORACLE["distilled"], ids=lambda case: f"{case['mode']}-{case['old']}-{case['bound']}")
def test_the_distillation_loss_is_the_policy_loss_of_the_reverse_kl(case: dict[str, Any]) -> None:
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    teacher = INPUTS["ref_log_probs"]
    advantages = distillation_advantages(log_probs, teacher, MASK, max_clamp=case["bound"])
    # verl's config of the distillation has no clip_ratio_c, so that its vanilla loss uses 3.0
    inputs = LossInputs(log_probs, INPUTS[case["old"]], advantages, MASK, clip_ratio_c=3.0)
    per_token = POLICY_LOSSES["vanilla"](inputs).loss
    loss = aggregate(per_token, MASK, case["mode"], total_tokens=TOKENS, total_sequences=SEQUENCES)
    loss.backward()  # type: ignore[no-untyped-call]
    close(loss.detach(), case["value"])
    assert log_probs.grad is not None
    close(log_probs.grad, case["gradient"])
    unbounded = distillation_advantages(log_probs, teacher, MASK, max_clamp=1e9)
    close(masked_sum(unbounded.abs(), MASK) / TOKENS, case["abs"])


@pytest.mark.parametrize(
    "case",
    ORACLE["distilled_topk"]["cases"],
    ids=lambda case: f"{case['mode']}-{case['k']}-{case['bound']}-{case['minimum']}",
)
def test_the_distillation_loss_of_the_teachers_most_likely_tokens(case: dict[str, Any]) -> None:
    logits, teacher = (
        torch.tensor(ORACLE["distilled_topk"][name], dtype=torch.float64) for name in ("policy", "teacher")
    )
    logits.requires_grad_()
    top = teacher.log_softmax(-1).topk(case["k"])
    log_probs = logits.log_softmax(-1).gather(-1, top.indices)
    found = forward_kl_topk(log_probs, top.values, MASK, max_clamp=case["bound"], min_log_prob=case["minimum"])
    loss = aggregate(found.loss, MASK, case["mode"], total_tokens=TOKENS, total_sequences=SEQUENCES)
    loss.backward()  # type: ignore[no-untyped-call]
    close(loss.detach(), case["value"])
    assert logits.grad is not None
    close(logits.grad, case["gradient"])
    for name in ("student_mass", "teacher_mass"):
        close(masked_sum(found.metrics[f"distillation/{name}"], MASK) / TOKENS, case[name])


@pytest.mark.parametrize("case", ORACLE["aggregations"], ids=lambda case: f"{case['mode']}-{len(case['counts'])}")
def test_aggregation(case: dict[str, Any]) -> None:
    counts = case["counts"]
    value = aggregate(
        INPUTS["advantages"],
        MASK,
        case["mode"],
        total_tokens=counts.get("batch_num_tokens", TOKENS),
        total_sequences=counts.get("global_batch_size", SEQUENCES),
        loss_scale_factor=counts["loss_scale_factor"],
    )
    # verl multiplies by the number of ranks, because FSDP averages; here TrainedModel does that
    close(value * counts.get("dp_size", 1), case["value"])


@pytest.mark.parametrize("case", ORACLE["kls"], ids=lambda case: f"{case['estimator']}-{case['reference']}")
def test_kl(case: dict[str, Any]) -> None:
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    value = kl_divergence(log_probs, INPUTS[case["reference"]], case["estimator"])
    value.sum().backward()  # type: ignore[no-untyped-call]
    close(value.detach(), case["value"])
    assert log_probs.grad is not None
    close(log_probs.grad, case["gradient"])


@pytest.mark.parametrize("case", ORACLE["values"], ids=lambda case: f"{case['mode']}-{case['clip']}")
def test_value_loss(case: dict[str, Any]) -> None:
    values = INPUTS["new_values"].clone().requires_grad_()
    result = value_loss(
        values, old_values=INPUTS["values"], returns=INPUTS["returns"], mask=MASK, cliprange_value=case["clip"]
    )
    loss = aggregate(result.loss, MASK, case["mode"], total_tokens=TOKENS, total_sequences=SEQUENCES)
    loss.backward()  # type: ignore[no-untyped-call]
    close(loss.detach(), case["value"])
    assert values.grad is not None
    close(values.grad, case["gradient"])
    close(masked_sum(result.metrics["critic/vf_clipfrac"], MASK) / TOKENS, case["clipped"])


def test_kl_in_the_reward() -> None:
    expected = ORACLE["kl_in_reward"]
    controller = KlController("adaptive", 0.2, target=0.1, horizon=1000)
    penalty = apply_kl_penalty(
        INPUTS["token_rewards"],
        log_probs=INPUTS["log_probs"],
        ref_log_probs=INPUTS["ref_log_probs"],
        mask=MASK,
        coefficient=controller.coefficient,
        estimator="low_var_kl",
    )
    controller.update(penalty.kl, len(MASK))
    close(penalty.token_rewards, expected["token_rewards"])
    close(penalty.kl, expected["kl"])
    close(controller.coefficient, expected["coefficient"])


def test_adaptive_controller() -> None:
    controller = KlController("adaptive", 0.2, target=0.1, horizon=1000)
    coefficients = []
    for kl, responses in [(0.5, 64), (0.11, 64), (0.01, 128), (0.1, 64), (3.0, 1000)]:
        controller.update(kl, responses)
        coefficients.append(controller.coefficient)
    close(torch.tensor(coefficients), ORACLE["controller"])


@pytest.mark.parametrize("case", ORACLE["corrections"], ids=lambda case: "-".join(map(str, case["settings"].values())))
def test_rollout_correction(case: dict[str, Any]) -> None:
    settings = case["settings"]
    result = correct_rollout(
        INPUTS["log_probs"],
        INPUTS["rollout_log_probs"],
        MASK,
        level=settings.get("level"),
        threshold=settings.get("threshold", 2.0),
        lower_threshold=settings.get("lower"),
        rejection=settings.get("rejection"),
        rejection_threshold=settings.get("rejection_threshold"),
    )
    assert (result.weights is None) == (case["weights"] is None)
    if result.weights is not None:
        close(result.weights, case["weights"])
    assert result.mask.tolist() == torch.tensor(case["mask"]).bool().tolist()
    for name, value in result.metrics.items():
        close(value, case["metrics"][name])


def test_mismatch_metrics() -> None:
    theirs = {**ORACLE["corrections"][0]["metrics"], **ORACLE["mismatch"]}
    for name, value in compute_mismatch_metrics(INPUTS["log_probs"], INPUTS["rollout_log_probs"], MASK).items():
        close(value, theirs[name])
