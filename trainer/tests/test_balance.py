"""Micro-batches are balanced, within their token limit, and contain every row once."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt_trainer.batches.balance import balance_parts, extend_micro_batches, group_micro_batches

LENGTHS = st.lists(st.integers(1, 100), min_size=1, max_size=24)


def loads(lengths: list[int], parts: list[list[int]]) -> list[int]:
    return [sum(lengths[row] for row in part) for part in parts]


@given(LENGTHS, st.integers(1, 6))
def test_parts_differ_by_no_more_than_the_longest_row(lengths: list[int], count: int) -> None:
    parts = balance_parts(lengths, count)
    assert sorted(chain.from_iterable(parts)) == list(range(len(lengths)))
    assert max(loads(lengths, parts)) - min(loads(lengths, parts)) <= max(lengths)


@given(st.lists(st.integers(1, 100), min_size=12, max_size=12), st.sampled_from([1, 2, 3, 4, 6]))
def test_equal_parts_have_the_same_number_of_rows(lengths: list[int], count: int) -> None:
    parts = balance_parts(lengths, count, equal=True)
    assert sorted(chain.from_iterable(parts)) == list(range(12))
    assert {len(part) for part in parts} == {12 // count}


@given(LENGTHS, st.integers(100, 400), st.integers(1, 40))
def test_micro_batches_stay_within_the_token_limit(lengths: list[int], max_tokens: int, count: int) -> None:
    costs = [length + length**2 / 50 for length in lengths]
    grouped = group_micro_batches(lengths, max_tokens, costs)
    extended = extend_micro_batches(grouped, lengths, max_tokens, costs, max(count, len(grouped)))
    for each in (grouped, extended):
        assert sorted(chain.from_iterable(each)) == list(range(len(lengths)))
        assert max(loads(lengths, each)) <= max_tokens
    assert len(extended) == max(count, len(grouped))
    found = [sum(costs[row] for row in part) for part in extended]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "expected"),
    [
        ([4, 4, 4, 4], 8, [[0, 2], [1, 3]]),
        ([9, 1, 1], 4, [[0], [1], [2]]),  # the row of 9 exceeds the limit
        ([5], 100, [[0]]),
    ],
)
def test_group_micro_batches(lengths: list[int], max_tokens: int, expected: list[list[int]]) -> None:
    assert group_micro_batches(lengths, max_tokens, lengths) == expected


def test_costs_are_balanced_if_the_tokens_fit() -> None:
    lengths = [8, 4, 4, 1]
    assert group_micro_batches(lengths, 12, [length**2 for length in lengths]) == [[0], [1, 2, 3]]
    assert group_micro_batches(lengths, 9, [length**2 for length in lengths]) == [[0], [1, 2, 3]]
    assert group_micro_batches([5, 3, 3, 3], 8, [9, 1, 1, 1]) == [[0, 3], [1, 2]]  # 9 tokens are too many


def test_fewer_rows_than_micro_batches_leave_empty_ones() -> None:
    assert extend_micro_batches([[0, 1]], [3, 2], 5, [3, 2], 3) == [[0], [1], []]
