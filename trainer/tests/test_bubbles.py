"""The share of an update that ranks wait for each other, at lognormal lengths. A simulation with the real splits."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import AutoConfig

from rlt_trainer.batches.balance import Cost, extend_micro_batches, group_micro_batches
from rlt_trainer.batches.sequences import balance_shares
from rlt_trainer.telemetry.flops import find_cost, find_shape

PROMPT = 256
MAX_RESPONSE = 8192
MAX_TOKENS = 16384
SIZES = {
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "8B": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
}
"""Of Qwen3."""


def find_bubble(lengths: list[int], ranks: int, *, balanced: Cost, equal: bool, cost: Cost) -> float:
    """Return the idle share of all ranks, which wait for each other in each micro-batch.

    balanced: the cost that shares and micro-batches balance; cost: the true one.
    """
    shares = balance_shares(lengths, ranks, cost=balanced, equal=equal)
    own = [[lengths[row] for row in share.tolist()] for share in shares]
    costs = [[balanced(length) for length in share] for share in own]
    grouped = [group_micro_batches(share, MAX_TOKENS, each) for share, each in zip(own, costs, strict=True)]
    count = max(map(len, grouped))
    times = []
    for parts, share, each in zip(grouped, own, costs, strict=True):
        extended = extend_micro_batches(parts, share, MAX_TOKENS, each, count)
        times.append([sum(cost(share[row]) for row in part) for part in extended])
    return 1 - float(np.sum(times) / (ranks * np.max(times, axis=0).sum()))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("ranks", "rows"), [(8, 64), (8, 256), (64, 512), (64, 1024), (64, 2048)])
def test_ranks_wait_less_than_5_percent_of_an_update(ranks: int, rows: int, size: str) -> None:
    config = AutoConfig.for_model("qwen3", vocab_size=151936, head_dim=128, num_key_value_heads=8, **SIZES[size])
    cost = find_cost(find_shape(config))
    bubbles = []
    for seed in range(5):
        responses = np.random.default_rng(seed).lognormal(np.log(1024), 1.0, rows)
        lengths = [PROMPT + int(each) for each in np.minimum(responses, MAX_RESPONSE)]
        tokens = find_bubble(lengths, ranks, balanced=float, equal=True, cost=cost)
        bubbles.append((tokens, find_bubble(lengths, ranks, balanced=cost, equal=False, cost=cost)))
    by_tokens, by_cost = np.mean(bubbles, axis=0)
    print(f"{size}, {ranks} ranks, {rows} responses: {by_tokens:.1%} by tokens and rows, {by_cost:.1%} by cost")
    assert by_cost < 0.05
    assert by_cost < by_tokens
