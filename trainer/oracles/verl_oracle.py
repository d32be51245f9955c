"""Results of verl. Run in an environment with verl 0.9.1: `python verl_oracle.py OUT.json`."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gsm8k_spellings import SPELLINGS
from oracle_inputs import random_inputs, random_logits, write
from torch import Tensor
from verl.protocol import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.distillation import losses as distillation
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.trainer.ppo.ray_trainer import apply_kl_penalty
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.reward_score import gsm8k
from verl.workers.config import DistillationLossConfig
from verl.workers.config.actor import ActorConfig, PolicyLossConfig

INPUTS = random_inputs()
MASK = INPUTS["mask"].double()
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
COUNTS = {"dp_size": 2, "batch_num_tokens": 100, "global_batch_size": 16, "loss_scale_factor": 12}


def advantages() -> list[dict[str, Any]]:
    """Every estimator, with default and other settings."""
    plain: dict[str, Any] = {}
    cases = [
        ("grpo", plain),
        ("grpo", {"norm_by_std": False}),
        ("grpo_vectorized", plain),
        ("grpo_passk", plain),
        ("grpo_passk", {"norm_by_std": False}),
        ("gae", plain),
        ("gae", {"gamma": 0.9, "lam": 0.8}),
        ("rloo", plain),
        ("rloo_vectorized", plain),
        ("reinforce_plus_plus", plain),
        ("reinforce_plus_plus", {"gamma": 0.7}),
        ("reinforce_plus_plus_baseline", plain),
        ("remax", plain),
        ("opo", plain),
    ]
    return [{"estimator": name, "settings": settings, **estimate(name, settings)} for name, settings in cases]


def estimate(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    rewards = INPUTS["token_rewards"].clone()
    groups = "groups_of_several" if name == "grpo_passk" else "groups"
    by_std = settings.get("norm_by_std", True)
    gamma = settings.get("gamma", 1.0)
    lam = settings.get("lam", 1.0)
    function = core_algos.get_adv_estimator_fn(name)
    if name == "gae":
        result = function(rewards, INPUTS["values"], MASK, gamma, lam)
    elif name == "remax":
        result = function(rewards, INPUTS["baselines"], MASK)
    else:
        config = AlgoConfig(gamma=gamma, lam=lam, norm_adv_by_std_in_grpo=by_std)
        options = {"norm_adv_by_std_in_grpo": by_std} if name == "grpo" else {}
        index = INPUTS[groups].numpy()
        result = function(token_level_rewards=rewards, response_mask=MASK, index=index, config=config, **options)
    return {"groups": groups, "advantages": result[0], "returns": result[1]}


def losses() -> list[dict[str, Any]]:
    """Every policy loss in every aggregation that it honors."""
    cases: list[dict[str, Any]] = []
    names = ["vanilla", "gspo", "cispo", "sapo", "geo_mean", "gpg", "dppo_tv", "dppo_kl"]
    for name, mode, old, weighted in product(names, MODES[:3], ["old_log_probs", "far_log_probs"], [False, True]):
        if name in ("sapo", "geo_mean") and mode != "seq-mean-token-mean":
            continue  # verl ignores the mode for them
        clip = (0.1, 0.3, 1.5) if weighted else (0.2, 0.2, 3.0)
        case = {"name": name, "mode": mode, "old": old, "weighted": weighted, "clip": clip}
        cases.append({**case, **loss(**case)})
    return cases


def loss(*, name: str, mode: str, old: str, weighted: bool, clip: tuple[float, float, float]) -> dict[str, Any]:
    low, high, c = clip
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=c,
        loss_agg_mode=mode,
        policy_loss=PolicyLossConfig(loss_mode=name),
    )
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    value, metrics = core_algos.get_policy_loss_fn(name)(
        INPUTS[old],
        log_probs,
        INPUTS["advantages"],
        MASK,
        mode,
        config,
        INPUTS["weights"] if weighted else None,
    )
    value.backward()
    return {"value": value.item(), "gradient": log_probs.grad, "metrics": metrics}


def covariances() -> list[dict[str, Any]]:
    """clip_cov and kl_cov, which select tokens. At random only where `share` of the tokens are fewer than there are."""
    cases = []
    for name, mode, (old, low, high), share in product(
        ["clip_cov", "kl_cov"],
        MODES[:3],
        [("log_probs", 0.2, 0.2), ("old_log_probs", 0.9, 9.0), ("old_log_probs", 0.1, 0.3)],
        [0.001, 0.1, 1.0],
    ):
        settings = {"share": share, "low": 0.2, "high": 1.5, "coef": 0.7}
        config = ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=low,
            clip_ratio_high=high,
            loss_agg_mode=mode,
            policy_loss=PolicyLossConfig(
                loss_mode=name,
                clip_cov_ratio=share,
                kl_cov_ratio=share,
                clip_cov_lb=0.2,
                clip_cov_ub=1.5,
                ppo_kl_coef=0.7,
            ),
        )
        log_probs = INPUTS["log_probs"].clone().requires_grad_()
        torch.manual_seed(0)
        arguments = (INPUTS[old], log_probs, INPUTS["advantages"], MASK, mode, config)
        value, metrics = core_algos.get_policy_loss_fn(name)(*arguments, INPUTS["weights"])
        value.backward()
        case = {"name": name, "mode": mode, "old": old, "clip": [low, high], **settings}
        cases.append({**case, "value": value.item(), "gradient": log_probs.grad, "metrics": metrics})
    return cases


def bypassed() -> list[dict[str, Any]]:
    """The loss without the old policy's log-probabilities: the rollout's are in their place."""
    cases = []
    for mode in MODES[:3]:
        config = ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=0.2,
            clip_ratio_high=0.3,
            clip_ratio_c=3.0,
            loss_agg_mode=mode,
            policy_loss=PolicyLossConfig(loss_mode="bypass_mode", rollout_correction={"loss_type": "ppo_clip"}),
        )
        log_probs = INPUTS["log_probs"].clone().requires_grad_()
        value, _ = core_algos.compute_policy_loss_bypass_mode(
            INPUTS["rollout_log_probs"], log_probs, INPUTS["advantages"], MASK, mode, config
        )
        value.backward()
        cases.append({"mode": mode, "value": value.item(), "gradient": log_probs.grad})
    return cases


def distilled() -> list[dict[str, Any]]:
    """The reverse KL to a teacher as the advantage of the sampled tokens (the reference's values are the teacher's)."""
    distillation.no_padding_2_padding = lambda values, _: values  # the inputs are padded
    cases = []
    for mode, old, bound in product(MODES[:3], ["log_probs", "old_log_probs"], [10.0, 0.25]):
        loss_config = DistillationLossConfig(loss_mode="k1", use_policy_gradient=True, loss_max_clamp=bound)
        log_probs = INPUTS["log_probs"].clone().requires_grad_()
        data = {"teacher_logprobs": INPUTS["ref_log_probs"][..., None], "old_log_probs": INPUTS[old]}
        value, metrics = distillation_loss(mode, loss_config, {"log_probs": log_probs}, data)
        value.backward()
        absolute = float(metrics["distillation/abs_loss"].values[0])
        case = {"mode": mode, "old": old, "bound": bound}
        cases.append({**case, "value": value.item(), "gradient": log_probs.grad, "abs": absolute})
    return cases


def distilled_topk() -> dict[str, Any]:
    """The forward KL over the teacher's most likely tokens, in float32, as verl computes it."""
    distillation.no_padding_2_padding = lambda values, _: values.view(MASK.shape)  # from [1, ROWS * WIDTH]
    policy, teacher = random_logits()
    cases = []
    for mode, k, bound, minimum in product(MODES[:3], [3, 9], [10.0, 0.25], [None, -2.0]):
        loss_config = DistillationLossConfig(
            loss_mode="forward_kl_topk",
            topk=k,
            use_policy_gradient=False,
            loss_max_clamp=bound,
            log_prob_min_clamp=minimum,
        )
        top = teacher.log_softmax(-1).topk(k)
        logits = policy.clone().requires_grad_()
        data = {"teacher_logprobs": nest(top.values), "teacher_ids": nest(top.indices)}
        outputs = distillation.compute_topk_loss(
            build_actor_config(mode),
            SimpleNamespace(distillation_loss=loss_config),
            data,
            logits.flatten(0, 1)[None],
            "thd",
        )
        value, metrics = distillation_loss(mode, loss_config, outputs, data)
        value.backward()
        masses = {name: metrics[f"distillation/{name}"] for name in ("student_mass", "teacher_mass")}
        case = {"mode": mode, "k": k, "bound": bound, "minimum": minimum}
        cases.append({**case, "value": value.item(), "gradient": logits.grad, **masses})
    return {"policy": policy, "teacher": teacher, "cases": cases}


def nest(values: Tensor) -> Tensor:
    """Lay out [ROWS, WIDTH, K] as verl does without padding."""
    return torch.nested.nested_tensor(list(values), layout=torch.jagged)


def build_actor_config(mode: str) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode, loss_scale_factor=12
    )


def distillation_loss(
    mode: str, loss_config: DistillationLossConfig, outputs: dict[str, Tensor], data: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Any]]:
    counts = {"dp_size": 1, "batch_num_tokens": int(MASK.sum()), "global_batch_size": len(MASK)}
    result: tuple[Tensor, dict[str, Any]] = distillation.distillation_loss(
        build_actor_config(mode),
        SimpleNamespace(distillation_loss=loss_config),
        outputs,
        {**data, "response_mask": MASK, **counts},
    )
    return result


def aggregations() -> list[dict[str, Any]]:
    return [
        {
            "mode": mode,
            "counts": counts,
            "value": core_algos.agg_loss(INPUTS["advantages"], MASK, mode, **counts).item(),
        }
        for mode in MODES
        for counts in ({"loss_scale_factor": 12}, COUNTS)
    ]


def kls() -> list[dict[str, Any]]:
    names = ["kl", "abs", "mse", "low_var_kl", "kl+", "abs+", "low_var_kl+"]
    cases = []
    for name, reference in product(names, ["ref_log_probs", "far_log_probs"]):
        log_probs = INPUTS["log_probs"].clone().requires_grad_()
        value = core_algos.kl_penalty(log_probs, INPUTS[reference], name)
        value.sum().backward()
        cases.append({"estimator": name, "reference": reference, "value": value.detach(), "gradient": log_probs.grad})
    return cases


def values() -> list[dict[str, Any]]:
    cases = []
    for mode, clip in product(MODES[:3], [0.2, 0.5]):
        predicted = INPUTS["new_values"].clone().requires_grad_()
        value, fraction = core_algos.compute_value_loss(
            predicted, INPUTS["returns"], INPUTS["values"], MASK, clip, mode
        )
        value.backward()
        cases.append(
            {
                "mode": mode,
                "clip": clip,
                "value": value.item(),
                "gradient": predicted.grad,
                "clipped": fraction.item(),
            }
        )
    return cases


def kl_in_reward() -> dict[str, Any]:
    controller = core_algos.AdaptiveKLController(init_kl_coef=0.2, target_kl=0.1, horizon=1000)
    tensors = {
        "response_mask": MASK,
        "token_level_scores": INPUTS["token_rewards"],
        "old_log_probs": INPUTS["log_probs"],
        "ref_log_prob": INPUTS["ref_log_probs"],
    }
    data, metrics = apply_kl_penalty(DataProto.from_dict(tensors=tensors), controller, kl_penalty="low_var_kl")
    return {
        "token_rewards": data.batch["token_level_rewards"],
        "kl": metrics["actor/reward_kl_penalty"],
        "coefficient": controller.value,
    }


def controller() -> list[float]:
    adaptive = core_algos.AdaptiveKLController(init_kl_coef=0.2, target_kl=0.1, horizon=1000)
    coefficients = []
    for kl, responses in [(0.5, 64), (0.11, 64), (0.01, 128), (0.1, 64), (3.0, 1000)]:
        adaptive.update(kl, responses)
        coefficients.append(adaptive.value)
    return coefficients


def corrections() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = [
        {"level": level, "threshold": upper, "lower": lower}
        for level in ("token", "sequence")
        for lower, upper in ((None, 2.0), (None, 1.1), (0.5, 2.0), (0.6, 1.4))
    ]
    options = sorted(rollout_corr_helper.SUPPORTED_ROLLOUT_RS_OPTIONS)
    cases += [
        {"rejection": option, "rejection_threshold": threshold}
        for option in options
        for threshold in ((1.2, 1.6) if option.endswith("k1") else (0.05, 0.3))
    ]
    return [{"settings": settings, **correction(settings)} for settings in cases]


def correction(settings: dict[str, Any]) -> dict[str, Any]:
    threshold: Any = settings.get("threshold", 2.0)
    if settings.get("lower") is not None:
        threshold = f"{settings['lower']}_{threshold}"
    weights, mask, metrics = rollout_corr_helper.compute_rollout_correction_and_rejection_mask(
        INPUTS["log_probs"],
        INPUTS["rollout_log_probs"],
        MASK,
        rollout_is=settings.get("level"),
        rollout_is_threshold=threshold,
        rollout_rs=settings.get("rejection"),
        rollout_rs_threshold=settings.get("rejection_threshold"),
    )
    applied = None if weights is None else weights.batch["rollout_is_weights"]
    return {"weights": applied, "mask": mask, "metrics": metrics}


def mismatch() -> dict[str, Any]:
    tensors = {
        "rollout_log_probs": INPUTS["rollout_log_probs"],
        "old_log_probs": INPUTS["log_probs"],
        "response_mask": INPUTS["mask"],
        "responses": torch.zeros_like(INPUTS["mask"], dtype=torch.int64),
    }
    metrics: dict[str, Any] = calculate_debug_metrics(SimpleNamespace(batch=tensors))
    return metrics


def gsm8k_scores() -> list[dict[str, Any]]:
    return [
        {
            "response": response,
            "answer": answer,
            **{method: gsm8k.compute_score(response, answer, method) for method in ("strict", "flexible")},
        }
        for response, answer in SPELLINGS
    ]


if __name__ == "__main__":
    write(
        Path(sys.argv[1]),
        {
            "inputs": INPUTS,
            "advantages": advantages(),
            "losses": losses(),
            "covariances": covariances(),
            "bypassed": bypassed(),
            "distilled": distilled(),
            "distilled_topk": distilled_topk(),
            "aggregations": aggregations(),
            "kls": kls(),
            "values": values(),
            "kl_in_reward": kl_in_reward(),
            "controller": controller(),
            "corrections": corrections(),
            "mismatch": mismatch(),
            "gsm8k": gsm8k_scores(),
        },
    )
