"""Tokens go to recorded experts, with the weights and the gradient of the current router."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_calls import EngineCalls
from replayed_mixtures import (
    ADVANTAGES,
    MIXTURES,
    PROMPTS,
    RESPONSES,
    SEQUENCES,
    build_actor,
    build_batch,
    change_routers,
    record,
    write_pair,
)
from test_rollout_interruption import PROMPTS as INTERRUPTED
from test_rollout_interruption import SAMPLING, Observed, start_until
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from rlt_api.rules.model_families import EXPERT_PARALLEL
from rlt_trainer.algorithms.rollout_correction import compute_mismatch_metrics
from rlt_trainer.batches.routes import encode_routes
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.families import validate_router_replay
from rlt_trainer.policy.router_replay import RouterReplay, _ForcedChoice
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.transformers_engine import TransformersEngine

pytestmark = pytest.mark.usefixtures("process_group")

TOKENS = torch.tensor([[51, 52, 53, 54, 55], [61, 62, 63, 64, 65]])
DIFFERENCE = "training/rollout_probs_diff_mean"
SETTINGS: list[dict[str, Any]] = [
    {},
    {"model": {"use_remove_padding": True}},
    {"model": {"enable_gradient_checkpointing": True}},
    {"training": {"ppo_micro_batch_size_per_device": 1}},
    {
        "model": {"use_remove_padding": True, "enable_gradient_checkpointing": True},
        "training": {"use_dynamic_bsz": True, "ppo_max_token_len_per_device": 8},
    },
    {"model": {"lora": {"rank": 2, "targetModules": ["q_proj"]}}},
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The folders of a model, and of one with other routers."""
    return write_pair(MIXTURES["qwen3_moe"], tmp_path_factory.mktemp("mixture"))


def compute_weights(model_type: str, logits: Tensor, numbers: Tensor, config: Any) -> Tensor:
    """The weights of experts by the formulas of the families' papers: shares of the softmax or of sigmoids."""
    if "qwen" in model_type:
        weights = logits.softmax(-1).gather(-1, numbers)
        return weights / weights.sum(-1, keepdim=True)
    weights = logits.sigmoid().gather(-1, numbers)
    return weights / weights.sum(-1, keepdim=True) * float(config.routed_scaling_factor)


@pytest.mark.parametrize("model_type", sorted(EXPERT_PARALLEL))
def test_the_current_router_weights_the_recorded_experts(model_type: str, tmp_path: Path) -> None:
    files, _ = write_pair(MIXTURES[model_type], tmp_path)
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    replay = RouterReplay(model)
    seen: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(lambda gate, inputs, output, name=name: seen.update({name: output}))

    def forward() -> Tensor:
        logits: Tensor = model(input_ids=TOKENS, use_cache=False).logits
        return logits

    with torch.no_grad():
        _, routes = replay.record(forward)
        change_routers(model)
        free, others = replay.record(forward)
        replay.force(routes)
        forced, found = replay.record(forward)
    assert torch.equal(found, routes)
    assert not torch.equal(others, routes)
    assert not torch.equal(forced, free)
    layers = [layer for layer in range(routes.shape[1]) if f"model.layers.{layer}.mlp.gate" in seen]
    assert len(layers) >= 2
    for layer in layers:
        logits, weights, numbers = seen[f"model.layers.{layer}.mlp.gate"]
        assert torch.equal(encode_routes(numbers, 8), routes[:, layer])
        assert_close(weights, compute_weights(model_type, logits, numbers, model.config))
    replay.force(torch.zeros_like(routes))
    assert torch.equal(forward(), free), "0 leaves the choice to the router"
    replay.force(None)
    assert torch.equal(forward(), free)


def test_the_gradient_of_the_weights_is_exact() -> None:
    """Finite differences in float64 of a router whose choice does not change."""
    torch.manual_seed(0)
    inputs, router = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 3), (4, 3)))
    routes = encode_routes(torch.tensor([[0, 1], [2, 3], [3, 0], [1, 2], [0, 3]]), 4)
    routes[4] = 0

    def weigh(inputs: Tensor, router: Tensor) -> Tensor:
        with _ForcedChoice(routes, 4) as choice:
            values, numbers = torch.topk((inputs @ router.T).softmax(-1), 2, dim=-1)
        assert choice.count == 1
        assert torch.equal(numbers[:4], routes[:4].long() - 1)
        return values / values.sum(-1, keepdim=True)

    assert torch.autograd.gradcheck(weigh, (inputs, router))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_update_uses_recorded_experts(settings: dict[str, Any], pair: tuple[str, str]) -> None:
    """Log-probabilities and the norm of the gradient equal a plain model's that is forced one row at a time."""
    files, changed = pair
    recorded = record(changed)
    actor = build_actor(files, "R3", settings)
    log_probs, _, routes = actor.record_log_probs(recorded)
    assert recorded.routes is not None
    assert torch.equal(torch.where(recorded.routes > 0, routes, 0), recorded.routes)
    result = actor.update(build_batch(recorded, log_probs))
    expected, norm = run_plain(files, recorded)
    assert_close(log_probs, expected, atol=1e-5, rtol=0)
    if "lora" not in settings.get("model", {}):
        assert result.grad_norm == pytest.approx(norm, rel=1e-4)
    free = build_actor(files, "disabled", settings)
    assert (free.log_probs(recorded)[0] - expected).abs().max() > 1e-3
    assert free.update(build_batch(recorded, log_probs)).grad_norm != pytest.approx(result.grad_norm, rel=1e-3)


def run_plain(files: str, recorded: Sequences) -> tuple[Tensor, float]:
    """Return the log-probabilities [B, T] and the norm of the policy gradient, with full logits and without FSDP2."""
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    replay = RouterReplay(model)
    assert recorded.routes is not None
    width = recorded.prompts.shape[1]
    rows = []
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        replay.force(recorded.routes[row, width - len(prompt) :][: len(prompt) + len(response)])
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]
        rows.append(functional.pad(chosen, (0, recorded.responses.shape[1] - len(response))))
    log_probs = torch.stack(rows)
    mask = SEQUENCES.response_mask
    loss = -(ADVANTAGES * log_probs)[mask].sum() / mask.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return log_probs.detach(), float(torch.nn.utils.get_total_norm(gradients))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_r2_changes_nothing_before_the_policy_changes(settings: dict[str, Any], pair: tuple[str, str]) -> None:
    actor = build_actor(pair[0], "R2", settings)
    log_probs, entropy, routes = actor.record_log_probs(SEQUENCES)
    plain = build_actor(pair[0], "disabled", settings)
    for values, expected in zip((log_probs, entropy), plain.log_probs(SEQUENCES), strict=True):
        assert torch.equal(values, expected)
    rows = [row[row.any(axis=(1, 2))] for row in routes.numpy()]
    assert [len(row) for row in rows] == SEQUENCES.token_counts(), "all tokens, and no padding"
    result = actor.update(build_batch(SEQUENCES.with_routes(rows), log_probs))
    expected_result = plain.update(build_batch(SEQUENCES, log_probs))
    assert result.shares == pytest.approx(expected_result.shares, rel=1e-6)
    assert result.grad_norm == pytest.approx(expected_result.grad_norm, rel=1e-6)


def test_the_reference_has_its_own_routes(pair: tuple[str, str]) -> None:
    files, changed = pair
    settings = {"algorithm": {"klLossCoef": 0.1}, "model": {"lora": {"rank": 2, "targetModules": ["q_proj"]}}}
    recorded = record(changed)
    with_adapters, alone = (build_actor(files, "R3", each) for each in (settings, {"algorithm": {"klLossCoef": 0.1}}))
    expected = build_actor(files, "disabled").log_probs(SEQUENCES)[0]
    for actor in (with_adapters, alone):
        actor.log_probs(recorded)
        assert_close(actor.ref_log_probs(SEQUENCES), expected, atol=1e-6, rtol=0)


def build_engine(files: str, dtype: torch.dtype = torch.float32, *, max_tokens: int = 6) -> EngineCalls:
    engine = TransformersEngine(files, dtype=dtype, device=torch.device("cpu"), reports_routes=True)
    return EngineCalls(engine, Sampling(temperature=1.0, top_p=1.0, max_tokens=max_tokens, stop_token_ids=()))


@pytest.mark.parametrize(("folder", "dtype"), [(1, torch.float32), (0, torch.bfloat16)], ids=str)
def test_the_mismatch_with_an_engine_of_other_routes_is_smaller(
    folder: int, dtype: torch.dtype, pair: tuple[str, str]
) -> None:
    """Its routers have other weights, or round. R3 uses its experts; their weights and the rounding still differ."""
    prompts = PROMPTS * 4
    engine = build_engine(pair[folder], dtype, max_tokens=64)
    responses = engine.generate(prompts, list(range(len(prompts))))
    engine.close()
    sequences = Sequences.pad(prompts, [each.token_ids for each in responses], pad_token_id=0)
    routed = sequences.with_routes([each.routes for each in responses])
    actor = build_actor(pair[0], "R3")
    sampled = torch.tensor([list(each.log_probs) for each in responses])
    free, forced = (
        compute_mismatch_metrics(actor.log_probs(each)[0], sampled, sequences.response_mask)
        for each in (sequences, routed)
    )
    assert forced[DIFFERENCE] < 0.8 * free[DIFFERENCE]
    assert forced["rollout_corr/k3_kl"] < free["rollout_corr/k3_kl"] / 4
    _, _, found = actor.record_log_probs(routed)
    assert routed.routes is not None
    assert torch.equal(torch.where(routed.routes > 0, found, 0), routed.routes)


def test_an_engine_reports_the_experts_of_all_tokens_but_the_last(pair: tuple[str, str]) -> None:
    engine = build_engine(pair[0])
    responses = engine.generate(PROMPTS, [1, 2, 3, 4], max_tokens=[6, 3, 1, 6])
    engine.close()
    _, _, routes = build_actor(pair[0], "R2").record_log_probs(
        Sequences.pad(PROMPTS, [each.token_ids for each in responses], pad_token_id=0)
    )
    for prompt, response, expected in zip(PROMPTS, responses, routes, strict=True):
        count = len(prompt) + len(response.token_ids) - 1
        assert response.routes is not None
        first = 4 - len(prompt)
        assert np.array_equal(response.routes, expected[first : first + count].numpy())


def test_tokens_keep_the_experts_of_the_weights_that_computed_them(pair: tuple[str, str]) -> None:
    """After a weight sync the engine computes all tokens again, and reports the new experts of new tokens alone."""
    old, new = (AutoModelForCausalLM.from_pretrained(each, dtype=torch.float32) for each in pair)
    engine = Observed(pair[0], dtype=torch.float32, device=torch.device("cpu"), reports_routes=True)
    engine.observe()
    calls = EngineCalls(engine, SAMPLING)
    pending = start_until(calls, 3)
    calls.update_weights(new.named_parameters())
    responses = pending.result(60)
    calls.close()
    routers = [RouterReplay(each) for each in (old, new)]
    for prompt, response in zip(INTERRUPTED, responses, strict=True):
        tokens = torch.tensor([[*prompt, *response.token_ids[:-1]]])
        before, after = (
            replay.record(partial(model, input_ids=tokens))[1].numpy()
            for model, replay in zip((old, new), routers, strict=True)
        )
        computed = len(prompt) + 2
        assert response.routes is not None
        assert np.array_equal(response.routes, np.concatenate([before[:computed], after[computed:]]))
        assert not np.array_equal(before, after)


def test_routes_reach_other_processes_without_padding() -> None:
    rows = [np.full((count - 1, 2, 3), count, dtype=np.int16) for count in SEQUENCES.token_counts()]
    routed = SEQUENCES.with_routes([None, *rows[1:]])
    assert routed.routes is not None
    received = pickle.loads(pickle.dumps(routed))
    assert torch.equal(received.routes, routed.routes)
    assert received.routes.dtype == torch.int16
    assert routed.routes[:, -1].any() == routed.routes[0].any() == 0
    assert routed.rows(torch.tensor([2])).flatten_routes(routed.routes[2:3]).any(axis=(1, 2)).sum() == len(rows[2])


def test_a_dense_model_is_rejected() -> None:
    validate_router_replay(Qwen3MoeConfig(), "R3")
    validate_router_replay(Qwen3Config(), "disabled")
    with pytest.raises(ValueError, match=r"algorithm\.routerReplay: R2 is not supported for models of type qwen3"):
        validate_router_replay(Qwen3Config(), "R2")
