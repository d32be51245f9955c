"""The weight sync detects an engine whose weights differ from the policy's."""

from __future__ import annotations

import pytest
import torch

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.rollout.weight_sums import Sums, sum_elements, sum_weights
from rlt_trainer.rollout.weight_sync import (
    StaleWeightsError,
    WeightSync,
    find_stale_layers,
    pad_probe,
    verify_log_probs,
)

PROBE = [[50, 51, 52], [60, 61]]
PROMPTS = [Prompt(i, tuple(tokens), "", "", "", "") for i, tokens in enumerate(PROBE)]


def engine(files: str, dtype: torch.dtype = torch.float32) -> TransformersEngine:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=2, stop_token_ids=())
    return TransformersEngine(files, dtype=dtype, device=torch.device("cpu"), sampling=sampling)


def test_equal_weights_pass(tiny_model: str) -> None:
    with torch.no_grad():
        expected, _ = response_log_probs(load_model(tiny_model, torch.float32), pad_probe(PROBE), temperature=1.0)
    assert verify_log_probs(engine(tiny_model), PROBE, expected, "float32") < 1e-5


@pytest.mark.parametrize("change", [1e-3, float("nan")])
def test_different_weights_fail(tiny_model: str, change: float) -> None:
    with torch.no_grad():
        expected, _ = response_log_probs(load_model(tiny_model, torch.float32), pad_probe(PROBE), temperature=1.0)
    with pytest.raises(StaleWeightsError, match="Stale weights in the rollout engine"):
        verify_log_probs(engine(tiny_model), PROBE, expected + change, "float32")


def test_one_changed_bit_of_one_layer_is_detected(tiny_model: str) -> None:
    """In bfloat16 the log-probabilities do not change."""
    policy, sampler = load_model(tiny_model, torch.bfloat16), engine(tiny_model, torch.bfloat16)
    sync = WeightSync(sampler, PROMPTS, "bfloat16")

    def expected() -> torch.Tensor:
        with torch.no_grad():
            return response_log_probs(policy, pad_probe(PROBE), temperature=1.0)[0]

    sync.sync(policy.named_parameters(), expected)
    name, weight = list(policy.named_parameters())[-4]
    assert ".layers.1." in name
    weight.data.view(torch.int16).view(-1)[0] ^= 1
    update = sampler.update_weights
    sampler.update_weights = lambda weights: update(  # type: ignore[method-assign]
        (each, tensor) for each, tensor in weights if each != name
    )
    with pytest.raises(StaleWeightsError, match=r"weights differ from those that were sent \(layer 1\)"):
        sync.sync(policy.named_parameters(), expected)
    sampler.update_weights = update  # type: ignore[method-assign]
    assert sync.sync(policy.named_parameters(), expected) < 5e-2


def test_the_sum_does_not_depend_on_the_layout() -> None:
    q, k = torch.randn(3, 4).bfloat16(), torch.randn(2, 4).bfloat16()
    fused = torch.cat([torch.cat([q, k]), torch.zeros(3, 4), -torch.zeros(1, 4)]).T.contiguous()
    assert sum_elements(fused.float()) == (sum_elements(q) + sum_elements(k)) % 2**64


def test_changes_with_sum_0_change_the_hash_sum() -> None:
    weight = torch.randn(64, 64).bfloat16()
    changed = weight.clone()
    changed.view(torch.int16)[0] += 1
    changed.view(torch.int16)[1] -= 1
    assert sum_elements(changed) != sum_elements(weight)


def test_sums_are_by_layer() -> None:
    one = torch.ones(1)
    sums = sum_weights([("model.layers.1.q", one), ("language.layers.1.experts.7.w", one), ("lm_head.weight", one)])
    assert sums.keys() == {1, None}
    assert sums[1] == 2 * sum_elements(one) % 2**64


FIRST: tuple[Sums, Sums] = ({}, {0: 1, 1: 2})
"""An engine before its first sync."""
SECOND: tuple[Sums, Sums] = ({0: 5, 1: 6}, {0: 5, 1: 60})
"""An engine that stores layer 1 in another format."""


@pytest.mark.parametrize(
    ("now", "before", "stale"),
    [
        (SECOND, FIRST, []),
        (({0: 5, 1: 6}, FIRST[1]), FIRST, [0, 1]),  # the engine still has its initial weights
        (SECOND, SECOND, []),  # no change
        (({0: 7, 1: 8}, {0: 7, 1: 80}), SECOND, []),
        (({0: 7, 1: 8}, {0: 5, 1: 80}), SECOND, [0]),
        (({0: 7, 1: 8}, {0: 7, 1: 60}), SECOND, [1]),
        (({0: 5, 1: 6}, {0: 5, 1: 61}), SECOND, [1]),  # nothing new was sent
        (({0: 7, 1: 6, 9: 1}, {0: 7, 1: 60}), SECOND, []),  # an engine without layer 9
    ],
)
def test_stale_layers_are_found(now: tuple[Sums, Sums], before: tuple[Sums, Sums], stale: list[int]) -> None:
    assert find_stale_layers(now, before) == stale
