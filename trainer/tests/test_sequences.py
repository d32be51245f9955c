"""Padding, mini-batches, and shares of rows."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest
import torch

from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences, balance_shares, split_mini_batches
from rlt_trainer.batches.trajectories import Trajectories


def sequences(rows: int) -> Sequences:
    return Sequences.pad(
        [[7] * (1 + i % 3) for i in range(rows)], [[8] * (1 + i % 2) for i in range(rows)], pad_token_id=0
    )


def test_prompts_are_padded_on_the_left_and_responses_on_the_right() -> None:
    padded = Sequences.pad([[1, 2], [3]], [[4], [5, 6]], pad_token_id=9)
    assert padded.prompts.tolist() == [[1, 2], [9, 3]]
    assert padded.prompt_mask.tolist() == [[True, True], [False, True]]
    assert padded.responses.tolist() == [[4, 9], [5, 6]]
    assert padded.response_mask.tolist() == [[True, False], [True, True]]


def test_a_response_can_contain_the_padding_token() -> None:
    assert Sequences.pad([[1]], [[4, 9]], pad_token_id=9).response_mask.all()


def test_observations_are_attended_to_and_masked() -> None:
    padded = Sequences.pad([[1], [2]], [[4, 5, 6], [7]], pad_token_id=9, chosen=[[True, False, True], [True]])
    assert padded.response_attention.tolist() == [[True, True, True], [True, False, False]]
    assert padded.response_mask.tolist() == [[True, False, True], [True, False, False]]


def test_mini_batches_contain_every_row_once_and_count_all_tokens() -> None:
    everything = sequences(8)
    advantages = torch.arange(8.0)[:, None].expand(everything.responses.shape)
    experience = Experience(everything, torch.zeros(8, 2), advantages)
    batches = list(split_mini_batches(experience, rows=4, shares=2))
    rows = [sorted(row for part in parts for row in part.experience.advantages[:, 0].tolist()) for parts in batches]
    assert rows == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    assert {len(part.experience) for parts in batches for part in parts} == {2}
    assert {(part.total_tokens, part.total_sequences) for parts in batches for part in parts} == {(6, 4)}


def test_a_mini_batch_contains_all_sequences_of_its_trajectories_and_is_filled_for_the_shares() -> None:
    everything = sequences(7)
    advantages = torch.arange(7.0)[:, None].expand(everything.responses.shape)
    trajectories = Trajectories.of([3, 1, 1, 2]).numbers
    experience = Experience(everything, torch.zeros(7, 2), advantages, trajectories=trajectories)
    batches = list(split_mini_batches(experience, rows=2, shares=3))
    rows = [sorted(row for part in parts for row in part.experience.advantages[:, 0].tolist()) for parts in batches]
    assert rows == [[0, 0, 0, 1, 2, 3], [4, 5, 6]]  # two copies of row 0 fill the shares
    first, _ = batches
    masks = torch.cat([part.experience.sequences.response_mask for part in first])
    assert (first[0].total_sequences, int(masks.any(-1).sum())) == (4, 4)
    assert (first[0].total_tokens, int(masks.sum())) == (6, 6)


def test_a_masked_response_is_not_counted() -> None:
    padded = Sequences.pad([[1]] * 2, [[4, 5], [6, 7]], pad_token_id=9, chosen=[[True, True], [False, False]])
    ((part,),) = split_mini_batches(Experience(padded, torch.zeros(2, 2), torch.zeros(2, 2)), rows=2, shares=1)
    assert (part.total_tokens, part.total_sequences) == (2, 1)


def test_a_mini_batch_of_masked_responses_is_skipped() -> None:
    padded = Sequences.pad([[1]] * 2, [[4], [6]], pad_token_id=9, chosen=[[False], [True]])
    batches = list(split_mini_batches(Experience(padded, torch.zeros(2, 1), torch.zeros(2, 1)), rows=1, shares=1))
    assert [part.total_tokens for (part,) in batches] == [1]


def test_shares_have_equally_many_rows_and_similar_tokens() -> None:
    uneven = Sequences.pad([[1]] * 4, [[2] * 9, [2] * 8, [2], [2, 2]], pad_token_id=0)
    assert [share.tolist() for share in balance_shares(uneven.token_counts(), 2)] == [[0, 2], [1, 3]]


def test_rows_that_are_not_divisible_fail() -> None:
    with pytest.raises(AssertionError, match="7 rows"):
        balance_shares(sequences(7).token_counts(), 2)


def test_other_processes_get_the_same_values_without_the_padding() -> None:
    padded = Sequences.pad([[1, 2], [3]], [[4], [5, 6, 7]], pad_token_id=0, chosen=[[True], [True, False, True]])
    log_probs = torch.tensor([[-1.0, 0.0, 0.0], [-2.0, -3.0, -4.0]])
    ids = torch.tensor([[[7, 8], [0, 0], [0, 0]], [[1, 2], [3, 4], [5, 6]]], dtype=torch.int32)
    experience = Experience(
        padded, log_probs, log_probs * 2, weights=log_probs * 3, selected=log_probs < -1.5, teacher_ids=ids
    )
    received = pickle.loads(pickle.dumps(MiniBatch(experience, 3, 2)))
    assert (received.total_tokens, received.total_sequences) == (3, 2)
    for ours, theirs in ((received.experience.sequences, padded), (received.experience, experience)):
        for field in fields(ours):
            one = getattr(ours, field.name)
            other = getattr(theirs, field.name)
            assert one is None if other is None else field.name == "sequences" or torch.equal(one, other)


def test_padding_is_not_sent() -> None:
    lengths = [1000, *[1] * 99]
    padded = Sequences.pad([[1]] * 100, [[2] * length for length in lengths], pad_token_id=0)
    assert len(pickle.dumps(padded)) < 10 * sum(lengths)
