"""Groups of later steps are restored unchanged from a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.rollouts import PendingGroup, Rollout
from rlt_trainer.driver.saved_rollouts import pack, unpack
from rlt_trainer.driver.schedule import Group
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rollout.engine import EngineError

PROMPTS = [Prompt(index, (1, index), f"{index}?", "x", "x", "s") for index in range(4)]
RESPONSES = [
    Response((5, 6, 7), (-0.1, 0.0, -1 / 3), (True, False, True), num_turns=2, finish_reason="length", version=3),
    Response(
        (8,),
        (-math.pi,),
        prompt=(1, 2),
        earlier=(Response((9, 9), (-1.0, -2.0), prompt=(3,)),),
        side=(Response((4,), (-1.0,), prompt=(5, 6)), Response((7,), (-2.0,), prompt=(8,))),
    ),
]
OUTCOMES: list[dict[str, Outcome]] = [
    {"exact": 1 / 3, "judge": Failure("unavailable", "status 503"), "environment": 0.5},
    {"exact": Failure("timed_out", "skipped", was_called=False), "judge": 0.25},
]


def by_index(indices: Sequence[int]) -> list[Prompt]:
    return [PROMPTS[index] for index in indices]


def decode(token_ids: Sequence[int]) -> str:
    return " ".join(map(str, token_ids))


def build_group(number: int, *, is_complete: bool = True) -> Group:
    prompt = PROMPTS[number % 4]
    pending = PendingGroup()
    if is_complete:
        pending.scored.set_result(
            [
                Rollout(prompt, response, decode(response.token_ids), dict(outcomes))
                for response, outcomes in zip(RESPONSES, OUTCOMES, strict=True)
            ]
        )
    return Group(number, number // 4, prompt, [number, 2**32 - 1], pending)


def test_groups_are_restored_unchanged() -> None:
    ready = [build_group(7), build_group(9)]
    others = [build_group(10, is_complete=False), build_group(12)]
    lost = build_group(11, is_complete=False)
    lost.pending.fail(EngineError("the prompt is too long"))
    restored = unpack(pack(ready, [*others, lost]), prompts=by_index, decode=decode)
    for before, after in zip([ready, [*others, lost]], restored, strict=True):
        for one, other in zip(before, after, strict=True):
            assert (one.number, one.started, one.prompt, one.seeds) == (
                other.number,
                other.started,
                other.prompt,
                other.seeds,
            )
            results = other.results()
            expected = one.results()
            assert (results is None) == (expected is None)
            for rollout, original in zip(results or [], expected or [], strict=True):
                assert (rollout.prompt, rollout.response, rollout.text) == (
                    original.prompt,
                    original.response,
                    original.text,
                )
                assert list(map(describe, rollout.outcomes.items())) == list(map(describe, original.outcomes.items()))


def test_routes_are_restored() -> None:
    routes = np.arange(1, 13, dtype=np.uint8).reshape(2, 3, 2)
    responses = [Response((5, 6), (-1.0, -2.0), routes=routes), Response((), (), finish_reason="abort")]
    pending = PendingGroup()
    pending.scored.set_result([Rollout(PROMPTS[0], each, decode(each.token_ids), {}) for each in responses])
    ((group,), _) = unpack(pack([Group(0, 0, PROMPTS[0], [1, 2], pending)], []), prompts=by_index, decode=decode)
    restored, aborted = (rollout.response.routes for rollout in group.results() or [])
    assert restored is not None
    assert restored.dtype == np.uint8
    assert np.array_equal(restored, routes)
    assert aborted is None


def describe(item: tuple[str, object]) -> tuple[str, object]:
    """The name and the outcome without the message, which is not saved."""
    name, outcome = item
    return name, (outcome.reason, outcome.was_called) if isinstance(outcome, Failure) else outcome


def test_groups_without_any_response_are_restored() -> None:
    ready, others = unpack(pack([], [build_group(3, is_complete=False)]), prompts=by_index, decode=decode)
    assert ready == []
    assert [(group.number, group.results()) for group in others] == [(3, None)]


def test_no_groups_have_no_tensors() -> None:
    assert pack([], []) == {}
    assert unpack({}, prompts=by_index, decode=decode) == ([], [])
