"""The weight sync detects an engine whose weights differ from the policy's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from engine_calls import EngineCalls
from torch import Tensor

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.rollout.weight_sums import (
    OTHERS,
    Layout,
    Piece,
    Summation,
    Sums,
    add_up_sums,
    sum_elements,
    sum_weights,
)
from rlt_trainer.rollout.weight_sync import (
    PROBE_LENGTH,
    PROBE_TOKENS,
    StaleWeightsError,
    Verification,
    build_probe,
    compare_log_probs,
    find_moved_weights,
    find_stale_parts,
    pad_probe,
)

PROBE = [[50, 51, 52], [60, 61]]


def test_equal_log_probs_pass() -> None:
    assert compare_log_probs([-1.0, -2.0], [-1.0, -2.0 - 1e-6], "float32") < 1e-5


@pytest.mark.parametrize("change", [1e-3, float("nan")])
def test_different_log_probs_fail(change: float) -> None:
    with pytest.raises(StaleWeightsError, match="Stale weights in the rollout engine"):
        compare_log_probs([-1.0, -2.0], [-1.0 + change, -2.0 + change], "float32")


def test_a_large_difference_in_bfloat16_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert compare_log_probs([-1.0, -2.0], [-1.1, -2.1], "bfloat16") == pytest.approx(0.1)
    assert "differ from the policy's by 0.1 on average (maximum for bfloat16: 0.05)" in caplog.text
    with pytest.raises(StaleWeightsError):
        compare_log_probs([-1.0], [float("nan")], "bfloat16")


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8"])
def test_garbage_fails_with_every_dtype(dtype: str) -> None:
    expected = [-1.0, -2.0]
    garbage = [-1.4, -2.9]
    with pytest.raises(StaleWeightsError, match=rf"differ from the policy's by 0.65 .* \(maximum for {dtype}: 0.5\)"):
        compare_log_probs(expected, garbage, dtype)
    with pytest.raises(StaleWeightsError, match=rf"maximum for {dtype}: 0.6"):
        compare_log_probs(expected, garbage, dtype, earlier=[0.06, 0.001, 0.4])
    assert compare_log_probs(expected, garbage, dtype, earlier=[0.07, 0.001, 0.4]) == pytest.approx(0.65)


def test_garbage_in_an_engine_of_unknown_layout_fails() -> None:
    """Its sums do not change if gate and up are exchanged."""
    sums = Sums({"layer 0": 5})
    verification = Verification(Sums({"layer 0": 1}), "bfloat16")
    for _ in range(3):
        verification.verify(sums, sums, expected=[-1.0], actual=[-1.01])
    with pytest.raises(StaleWeightsError, match="differ from the policy's by 10"):
        verification.verify(sums, sums, expected=[-1.0], actual=[-11.0])


@pytest.mark.parametrize(("lengths", "limit"), [([3, 1], 20), ([400, 7], 10_000), ([5] * 64, 2)])
def test_a_probe_has_enough_tokens_in_sequences_of_a_limited_length(lengths: list[int], limit: int) -> None:
    prompts = [Prompt(i, tuple(range(length)), "", "", "", "") for i, length in enumerate(lengths)]
    probe = build_probe(prompts, limit)
    assert {len(each) for each in probe} == {min(limit, PROBE_LENGTH)}
    assert PROBE_TOKENS <= sum(len(each) - 1 for each in probe) < PROBE_TOKENS + PROBE_LENGTH
    tokens = [token for prompt in prompts for token in prompt.token_ids]
    assert [token for each in probe for token in each][: len(tokens)] == tokens[: sum(len(each) for each in probe)]


def test_one_changed_bit_of_one_layer_is_detected(tiny_model: str) -> None:
    """In bfloat16 the log-probabilities do not change."""
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=2, stop_token_ids=())
    policy = load_model(tiny_model, torch.bfloat16)
    sampler = EngineCalls(TransformersEngine(tiny_model, dtype=torch.bfloat16, device=torch.device("cpu")), sampling)
    verification = Verification(sampler.sum_weights(), "bfloat16")
    probe = pad_probe(PROBE)

    def verify(sent: Sums) -> float:
        with torch.no_grad():
            expected = response_log_probs(policy, probe, temperature=1.0)[0][probe.response_mask].tolist()
        actual = [value for row in sampler.log_probs(PROBE) for value in row]
        return verification.verify(sent, sampler.sum_weights(), expected=expected, actual=actual)

    verify(sampler.update_weights(policy.named_parameters()))
    name, weight = list(policy.named_parameters())[-4]
    assert ".layers.1." in name
    weight.data.view(torch.int16).view(-1)[0] ^= 1
    sampler.update_weights((each, tensor) for each, tensor in policy.named_parameters() if each != name)
    with pytest.raises(StaleWeightsError, match=rf"weights differ from those that were sent \({name}\)"):
        verify(sum_weights(policy.named_parameters()))
    assert verify(sampler.update_weights(policy.named_parameters())) < 5e-2


def test_the_sum_does_not_depend_on_the_layout() -> None:
    q = torch.randn(3, 4).bfloat16()
    k = torch.randn(2, 4).bfloat16()
    fused = torch.cat([torch.cat([q, k]), torch.zeros(3, 4), -torch.zeros(1, 4)]).T.contiguous()
    assert sum_elements(fused.float()) == sum_elements(q) + sum_elements(k)


def test_changes_with_sum_0_change_the_hash_sum() -> None:
    weight = torch.randn(64, 64).bfloat16()
    changed = weight.clone()
    changed.view(torch.int16)[0] += 1
    changed.view(torch.int16)[1] -= 1
    assert sum_elements(changed) != sum_elements(weight)


EXCHANGES: list[Callable[[Tensor], Tensor]] = [
    lambda weight: weight.T,
    lambda weight: weight.flip(0),
    lambda weight: weight.flip(1),
    lambda weight: weight[:, [1, 0, *range(2, 64)]],
    lambda weight: torch.cat([weight[32:], weight[:32]]),
    lambda weight: weight.reshape(-1)[torch.randperm(64 * 64)].view(64, 64),
]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_exchanged_elements_change_the_sum_of_a_weight_and_not_of_a_layer(exchange: Callable[[Tensor], Tensor]) -> None:
    weight = torch.randn(64, 64).bfloat16()
    before, after = (sum_weights([("layers.0.w", each)]) for each in (weight, exchange(weight)))
    assert before.parts == after.parts
    assert find_moved_weights(before, after) == ["layers.0.w"]


def test_the_sum_of_a_weight_adds_up_over_its_shards() -> None:
    """Two devices have rows of q and k in one tensor, and columns of o. Both have k whole."""
    q = torch.randn(8, 6)
    k = torch.randn(2, 6)
    o = torch.randn(4, 8)
    devices = []
    for device in range(2):
        summation = Summation()
        fused = torch.cat([q[4 * device : 4 * device + 4], k, torch.zeros(1, 6)])
        pieces = (Piece("0.q", 0, 4, 4 * device), Piece("0.k", 4, 6, 0))
        summation.add("0.qk", fused, Layout(pieces, shape=fused.shape))
        part = o[:, 4 * device : 4 * device + 4]
        summation.add("0.o", part, Layout((Piece("0.o", 0, 4, 0),), 4 * device, part.shape))
        devices.append(summation.read())
    sent = sum_weights([("0.q", q), ("0.k", k), ("0.o", o)])
    held = add_up_sums(devices)
    assert held.weights["0.k"] == (2 * sent.weights["0.k"][0] % 2**64, 2 * k.numel())
    assert find_moved_weights(sent, held) == []


@pytest.mark.parametrize(
    ("held", "moved"),
    [
        ({"q": (5, 10), "k": (7, 4)}, []),
        ({"q": (10, 20), "k": (7, 4)}, []),  # two replicas
        ({"q": (5, 10), "k": (8, 4)}, ["k"]),
        ({"q": (5, 10)}, ["k"]),  # k has not arrived
        ({"q": (5, 10), "k": (7, 4), "head": (1, 4)}, ["head"]),  # it was not sent
        ({"q": (5, 10), "k": (0, 0)}, []),  # at an unknown place
        ({"q": (5, 10), "k": (1, 2)}, []),  # half of it is at a known place
        ({}, []),  # an engine that knows no place
    ],
)
def test_moved_weights_are_found(held: dict[str, tuple[int, int]], moved: list[str]) -> None:
    assert find_moved_weights(Sums({}, {"q": (5, 10), "k": (7, 4)}), Sums({}, held)) == moved


def test_sums_are_by_layer_and_expert() -> None:
    one = torch.ones(1)
    stack = torch.randn(3, 4, 5)
    sums = sum_weights(
        [
            ("model.layers.1.q", one),
            ("model.layers.1.mlp.shared_experts.up", one),
            ("language.layers.1.experts.gate_up_proj", stack),
            ("language.layers.2.experts.7.w", one),
            ("lm_head.weight", one),
        ]
    ).parts
    assert list(sums) == ["layer 1", *(f"layer 1, expert {i}" for i in range(3)), "layer 2, expert 7", OTHERS]
    assert sums["layer 1"] == 2 * int(sum_elements(one)) % 2**64
    assert sums["layer 1, expert 2"] == int(sum_elements(stack[2])) % 2**64


def test_experts_are_verified_one_by_one_under_fused_and_single_names() -> None:
    """The policy sends single experts, and the engine holds a stack, with rows and columns in another order."""
    gate = torch.randn(3, 8, 4)
    up = torch.randn(3, 8, 4)
    down = torch.randn(3, 4, 8)
    single = {"gate_proj": gate, "up_proj": up, "down_proj": down}
    sent = sum_weights(
        (f"model.layers.0.mlp.experts.{expert}.{name}.weight", stack[expert])
        for name, stack in single.items()
        for expert in range(3)
    )
    fused = {"w13_weight": torch.cat([gate, up], dim=1).transpose(1, 2).contiguous(), "w2_weight": down}
    prefix = "model.layers.0.mlp.experts.routed_experts."

    def held() -> Sums:
        return sum_weights((f"{prefix}{name}", stack) for name, stack in fused.items())

    assert held().parts == sent.parts
    before = (sent, held())
    fused["w2_weight"] = down[[1, 0, 2]]  # the sum over the layer is the same
    assert find_stale_parts((sent, held()), before) == ["layer 0, expert 0", "layer 0, expert 1"]


Parts = dict[str, int]
FIRST: tuple[Parts, Parts] = ({}, {"0": 1, "1": 2})
"""An engine before its first sync."""
SECOND: tuple[Parts, Parts] = ({"0": 5, "1": 6}, {"0": 5, "1": 60})
"""An engine that stores layer 1 in another format."""


@pytest.mark.parametrize(
    ("now", "before", "stale"),
    [
        (SECOND, FIRST, []),
        (({"0": 5, "1": 6}, FIRST[1]), FIRST, ["0", "1"]),  # the engine still has its initial weights
        (SECOND, SECOND, []),  # no change
        (({"0": 7, "1": 8}, {"0": 7, "1": 80}), SECOND, []),
        (({"0": 7, "1": 8}, {"0": 5, "1": 80}), SECOND, ["0"]),
        (({"0": 7, "1": 8}, {"0": 7, "1": 60}), SECOND, ["1"]),
        (({"0": 5, "1": 6}, {"0": 5, "1": 61}), SECOND, ["1"]),  # nothing new was sent
        (({"0": 7, "1": 6, "9": 1}, {"0": 7, "1": 60}), SECOND, []),  # an engine without layer 9
    ],
)
def test_stale_parts_are_found(now: tuple[Parts, Parts], before: tuple[Parts, Parts], stale: list[str]) -> None:
    sums = [(Sums(sent), Sums(held)) for sent, held in (now, before)]
    assert find_stale_parts(sums[0], sums[1]) == stale
