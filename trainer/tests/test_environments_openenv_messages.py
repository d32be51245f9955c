"""How a turn becomes an action of OpenEnv, and what of an answer the policy receives."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rlt_api.blocks.rollout import OpenEnv
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example
from rlt_trainer.environments.openenv import build_websocket_url
from rlt_trainer.environments.openenv_messages import ActionError, Answer, build_reset, build_step, parse_answer
from rlt_trainer.environments.session import SessionError

MOVE = r"(?s)<move>(.*?)</move>"


def settings(**changes: Any) -> OpenEnv:
    return OpenEnv.model_validate({"url": "http://echo:8000", **changes})


@pytest.mark.parametrize(
    ("turn", "changes", "action"),
    [
        (" a\n", {"actionField": "message"}, {"message": " a\n"}),
        ("<move>a</move> or <move>b\nc</move>", {"actionField": "move", "actionPattern": MOVE}, {"move": "b\nc"}),
        ("b", {"actionField": "move", "actionPattern": "a(x)?|b"}, {"move": ""}),
        (' {"x": [1], "y": "\\ud83c\\udf0a"}\n', {}, {"x": [1], "y": "\U0001f30a"}),
        ('I choose <move>{"x": 1}</move>.', {"actionPattern": MOVE}, {"x": 1}),
    ],
)
def test_a_turn_becomes_an_action(turn: str, changes: dict[str, str], action: dict[str, Any]) -> None:
    assert json.loads(build_step(turn, settings(**changes))) == {"type": "step", "data": action}


@pytest.mark.parametrize(
    ("turn", "changes", "message"),
    [
        ("a", {}, "the action is not JSON"),
        ("[1]", {}, "the action is not a JSON object"),
        ("[" * 100_000, {}, "the action is not JSON"),
        ("9" * 10_000, {}, "the action is not JSON"),
        ("a", {"actionPattern": MOVE}, "the turn does not match (?s)<move>"),
    ],
)
def test_a_turn_without_an_action_is_an_error(turn: str, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ActionError) as error:
        build_step(turn, settings(**changes))
    assert str(error.value).startswith(message)


def test_a_reset_has_the_seed_and_the_extra_info_of_the_row() -> None:
    rows = tokenize([Example(each, "", "", "test", {"level": 2}) for each in "ab"], build_byte_tokenizer())
    first, second = (json.loads(build_reset(row)) for row in rows)
    assert (first, second["data"]["seed"]) == ({"type": "reset", "data": {"seed": 0, "level": 2}}, 1)
    given = replace(rows[0], extra_info={"seed": 7, "path": b"x"})
    assert json.loads(build_reset(given))["data"] == {"seed": 7, "path": "b'x'"}


@pytest.mark.parametrize(
    ("observation", "field", "text"),
    [
        ({"text": "hello", "turn": 1}, "text", "hello"),
        ({"text": "hello", "turn": 1}, "turn", "1"),
        ({"text": "hello", "turn": 1}, None, '{"text": "hello", "turn": 1}'),
        ({"messages": [{"content": "hé"}]}, "messages", '[{"content": "hé"}]'),
        ({"text": None}, "text", ""),
        ({"messages": [{"content": "a"}, {"content": "b"}], "turn": 1}, "messages.content", "a\nb"),
        ({"messages": [], "turn": 1}, "messages.content", ""),
        ({"result": None, "tool_name": "x"}, "result.data", ""),
        ({"result": {"data": {"score": 1}}}, "result.data", '{"score": 1}'),
        ({"metadata": {"status": "ready"}}, "result.data", '{"status": "ready"}'),
        ({"metadata": {}}, "result.data", ""),
    ],
)
def test_an_observation_becomes_text(observation: dict[str, Any], field: str | None, text: str) -> None:
    message = json.dumps({"type": "observation", "data": {"observation": observation}})
    assert parse_answer(message, field) == Answer(text)


@pytest.mark.parametrize("field", ["words", "text.words", "messages.text", "messages.content.words"])
def test_a_field_that_the_observation_lacks_is_a_failure(field: str) -> None:
    observation = {"text": "a", "messages": [{"content": "b"}]}
    message = json.dumps({"type": "observation", "data": {"observation": observation}})
    with pytest.raises(SessionError, match=f"no field {field}; its fields are text, messages"):
        parse_answer(message, field)


def test_reward_and_done_are_read() -> None:
    data = {"observation": {}, "reward": True, "done": True, "metadata": {}}
    assert parse_answer(json.dumps({"type": "observation", "data": data}), None) == Answer("{}", 1.0, is_done=True)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"errors": [{"loc": ["a", 0], "msg": "bad"}, {"msg": "worse"}, 3]}, "a.0: bad; worse"),
        ({"errors": "none"}, "Invalid message"),
        ({}, "Invalid message"),
    ],
)
def test_a_rejected_action_is_explained(data: dict[str, Any], text: str) -> None:
    given = {"message": "Invalid message", "code": "VALIDATION_ERROR", **data}
    assert parse_answer(json.dumps({"type": "error", "data": given}), None) == Answer(text, is_rejection=True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://echo:8000", "ws://echo:8000/ws"),
        ("https://echo.games/v1/", "wss://echo.games/v1/ws"),
        ("ws://http.games", "ws://http.games/ws"),
        ("wss://echo", "wss://echo/ws"),
    ],
)
def test_connections_go_to_ws_below_the_url(url: str, expected: str) -> None:
    assert build_websocket_url(url) == expected
