"""The pairs of pods that are measured, and the slow pods among them."""

from __future__ import annotations

from itertools import combinations

import pytest

from rlt_pod.preflight.facts.pairs import MAX_ROUNDS, Pair, choose_rounds, find_slow_pods

NODES = [f"pod-{number}" for number in range(9)]


@pytest.mark.parametrize("count", range(2, 10))
def test_a_pod_is_in_one_pair_of_a_round_and_no_pair_repeats(count: int) -> None:
    rounds = choose_rounds(NODES[:count])
    assert len(rounds) == min(MAX_ROUNDS, count - 1 + count % 2)
    for pairs in rounds:
        members = [pod for pair in pairs for pod in pair]
        assert len(members) == len(set(members)) == count - count % 2
    every = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(every) == len(set(every))


@pytest.mark.parametrize("count", range(3, 10))
@pytest.mark.parametrize("slow", [0, 1, -1])
def test_one_slow_pod_is_found_in_any_position(count: int, slow: int) -> None:
    pods = NODES[:count]
    pairs = [
        Pair(pair, 1e9 if pods[slow] in pair else 10e9 + index)
        for index, pair in enumerate(pair for pairs in choose_rounds(pods) for pair in pairs)
    ]
    assert find_slow_pods(pairs) == [pods[slow]]


def test_alike_pods_are_not_slow_and_one_pair_decides_nothing() -> None:
    pairs = [Pair(pair, 10e9 + 3e9 * (index % 2)) for index, pair in enumerate(combinations(NODES[:4], 2))]
    assert find_slow_pods(pairs) == []
    assert find_slow_pods([Pair(("a", "b"), 0.0)]) == []
