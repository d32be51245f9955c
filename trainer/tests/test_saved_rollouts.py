"""Rollout batches of later steps are restored unchanged from a checkpoint."""

from __future__ import annotations

import math

import torch

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.saved_rollouts import pack, unpack

PROMPTS = [Prompt(index, (1, index), f"{index}?", "x", "x", "s") for index in range(4)]


def rollout_batch(consumed: int) -> RolloutBatch:
    responses = [
        Response((5, 6, 7), (-0.1, 0.0, -1 / 3), (True, False, True), num_turns=2, finish_reason="length"),
        Response((8,), (-math.pi,), prompt=(1, 2), earlier=(Response((9, 9), (-1.0, -2.0), prompt=(3,)),)),
    ]
    total = torch.tensor([0.5, math.nan])
    scores = Scores(total, {"exact": total, "format": torch.ones(2)}, total.isnan(), {"exact/timed_out": 1})
    return RolloutBatch(
        [PROMPTS[3], PROMPTS[1]],
        responses,
        ["5 6 7", "8"],
        scores,
        torch.tensor([-0.25, 0.0]),
        torch.ones(2),
        consumed,
        2,
    )


def test_batches_are_restored_unchanged() -> None:
    queue = {4: rollout_batch(8), 12: rollout_batch(10)}
    restored = unpack(
        pack(queue),
        prompts=lambda indices: [PROMPTS[index] for index in indices],
        decode=lambda rows: [" ".join(map(str, row)) for row in rows],
    )
    assert list(restored) == [4, 12]
    for step, one in restored.items():
        other = queue[step]
        assert (one.prompts, one.responses, one.texts) == (other.prompts, other.responses, other.texts)
        assert torch.equal(one.scores.total.nan_to_num(7), other.scores.total.nan_to_num(7))
        assert one.scores.failed.tolist() == [False, True]
        assert one.scores.reasons == other.scores.reasons
        assert list(one.scores.by_reward) == ["exact", "format"]
        assert torch.equal(one.penalties, other.penalties)
        assert (one.consumed, one.num_gen_batches) == (other.consumed, other.num_gen_batches)


def test_an_empty_queue_has_no_tensors() -> None:
    assert pack({}) == {}
    assert unpack({}, prompts=lambda _: [], decode=lambda _: []) == {}
