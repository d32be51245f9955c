"""Pages of rollouts: one for each prompt."""

from __future__ import annotations

from rlt.runs.pages import RolloutQuery, select_page

ROLLOUTS = [
    {"index": 0, "response": "a", "reward": 0.0},
    {"index": 0, "response": "b", "reward": 1.0},
    {"index": 1, "response": "c", "reward": 0.5},
    {"index": 1, "response": "delta", "reward": 0.25},
    {"response": "without an index", "reward": 0.1},
    {"response": "another", "reward": 0.1},
]


def test_the_first_response_of_each_prompt_in_the_order_is_shown() -> None:
    page = select_page(lambda _: ROLLOUTS, RolloutQuery(order="best", grouped=True))
    assert [each["response"] for each in page.rollouts] == ["b", "c", "without an index", "another"]
    assert [each["siblings"] for each in page.rollouts] == [2, 2, 1, 1]
    assert (page.matched, page.recorded) == (4, 6)
    worst = select_page(lambda _: ROLLOUTS, RolloutQuery(order="worst", grouped=True, limit=2, offset=1))
    assert [each["response"] for each in worst.rollouts] == ["without an index", "another"]


def test_the_segments_of_a_page_show_what_is_not_trained_on() -> None:
    segments = [{"text": "a title", "learned": False, "side": True}, {"text": "b", "learned": True, "other": 1}, 7]
    page = select_page(lambda _: [{"response": "b", "segments": segments}], RolloutQuery())
    (rollout,) = page.rollouts
    assert rollout["segments"] == [segments[0], {"text": "b", "learned": True}]


def test_a_search_finds_a_prompt_by_any_of_its_responses() -> None:
    page = select_page(lambda _: ROLLOUTS, RolloutQuery(order="best", grouped=True, search="DELTA"))
    assert [(each["response"], each["siblings"]) for each in page.rollouts] == [("delta", 2)]
