"""Messages of OpenEnv's WebSocket protocol: a turn becomes an action, and an answer becomes text. Pure.

Source: openenv 0.10.0, openenv/core/env_server/types.py and the route /ws in http_server.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlt_api.blocks.rollout import OpenEnv
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.session import SessionError

REJECTED = "VALIDATION_ERROR"
"""The code of an error for an action that does not conform to the environment's schema."""
NO_CAPACITY = "CAPACITY_REACHED"
"""The code of an error for a connection beyond the server's max_concurrent_envs."""
CLOSE = '{"type": "close"}'
"""Ends the server's side of a conversation. The server then closes the connection."""
SHOWN_CHARACTERS = 1000
"""Maximum number of characters of an answer in messages."""


class ActionError(Exception):
    """A turn of the policy contains no action."""


class CapacityError(SessionError):
    """All sessions of the server are in use."""


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    text: str
    """The observation, or the reasons for which the action was rejected."""
    reward: float | None = None
    is_done: bool = False
    is_rejection: bool = False


def build_reset(prompt: Prompt) -> str:
    """Build the message that starts a conversation: the row's position as its seed, and its extra_info."""
    data = {"seed": prompt.index, **prompt.extra_info}
    return json.dumps({"type": "reset", "data": data}, default=str)


def build_step(turn: str, openenv: OpenEnv) -> str:
    """Build the message with the action of a turn. Raises ActionError."""
    text = turn
    if openenv.action_pattern is not None:
        found = list(re.finditer(openenv.action_pattern, turn))
        if not found:
            raise ActionError(f"the turn does not match {openenv.action_pattern}")
        text = found[-1][1] or ""
    action: Any = {openenv.action_field: text}
    if openenv.action_field is None:
        try:
            action = json.loads(text)
        except (ValueError, RecursionError):
            raise ActionError("the action is not JSON") from None
        if not isinstance(action, dict):
            raise ActionError("the action is not a JSON object")
    return json.dumps({"type": "step", "data": action})


def parse_answer(message: str | bytes, observation_field: str | None) -> Answer:
    """Parse the answer to a reset or a step. Raises SessionError for another message and for an error of the server,
    and CapacityError."""
    try:
        match json.loads(message):
            case {"type": "observation", "data": {"observation": dict() as observation} as data}:
                text = _render(observation, observation_field)
                return Answer(text, _parse_reward(data.get("reward")), _parse_done(data.get("done")))
            case {"type": "error", "data": dict() as data}:
                return _parse_error(data)
    except (ValueError, OverflowError, RecursionError):
        pass
    shown = message[:SHOWN_CHARACTERS]
    raise SessionError(f"its answer is not a valid observation or error: {shown!r}")


def _render(observation: dict[str, Any], field: str | None) -> str:
    if field is None:
        values: list[Any] = [observation]
    elif observation.keys() <= {"metadata"}:  # the base class, such as the reset of an environment with MCP tools
        values = [observation.get("metadata") or None]
    else:
        try:
            values = list(_select(observation, field.split(".")))
        except LookupError:
            names = ", ".join(observation)[:SHOWN_CHARACTERS]
            raise SessionError(f"its observation has no field {field}; its fields are {names}") from None
    texts = (
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values if each is not None
    )
    return "\n".join(texts).encode(errors="replace").decode()  # tokenizers reject lone surrogates


def _select(value: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a path. A list has the values of all its items. Raises LookupError."""
    if not names or value is None:
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _select(each, names)
    elif isinstance(value, dict):
        yield from _select(value[names[0]], names[1:])
    else:
        raise LookupError


def _parse_reward(reward: Any) -> float | None:
    if reward is None:
        return None
    if not isinstance(reward, (int, float)):
        raise ValueError
    return float(reward)


def _parse_done(done: Any) -> bool:
    if not isinstance(done, (bool, type(None))):
        raise ValueError
    return bool(done)


def _parse_error(data: dict[str, Any]) -> Answer:
    code = data.get("code")
    message = str(data.get("message"))[:SHOWN_CHARACTERS]
    if code == NO_CAPACITY:
        raise CapacityError(message)
    if code != REJECTED:
        raise SessionError(f"it failed with {str(code)[:SHOWN_CHARACTERS]}: {message}")
    errors = data.get("errors")
    reasons = [_explain(error) for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    text = "; ".join(reasons) or message
    return Answer(text.encode(errors="replace").decode(), is_rejection=True)


def _explain(error: dict[str, Any]) -> str:
    """Return field and message of one of pydantic's errors."""
    location = error.get("loc")
    field = ".".join(map(str, location)) if isinstance(location, list) else ""
    return f"{field}: {error.get('msg')}" if field else str(error.get("msg"))
