"""The requests of an agent's episode, as sequences of tokens: generated tokens are never tokenized again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.data.encoding import chat_text
from rlt_trainer.environments.observation import tokenize_observation
from rlt_trainer.environments.policy_request import Message, RequestError, to_template_messages


@dataclass(frozen=True)
class AgentLimits:
    """Limits of one episode."""

    max_requests: int
    """rollout.multiTurn.maxTurns"""
    max_prompt_length: int
    """data.maxPromptLength, for the first request of a sequence."""
    max_response_length: int
    """data.maxResponseLength, for all tokens of a sequence after it."""


@dataclass(eq=False)
class _Sequence:
    """Requests of which each extends the one before."""

    prompt: tuple[int, ...]
    has_tools: bool
    begins: bool
    """Whether its first request has no turn of the policy."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    turns: int = 0
    finish_reason: FinishReason = "stop"
    version: int | None = None
    text: str = ""
    """Of the latest turn's message."""
    is_used: bool = False
    """Whether a later request has the text."""
    latest: int = 0
    """The number of the latest turn in the episode, from 1."""

    @property
    def is_apart(self) -> bool:
        """Whether nothing of the episode's other requests is in it, and nothing of it in them."""
        return self.begins and not self.has_tools and self.turns == 1 and not self.is_used

    def append(self, observation: Sequence[int], turn: Response) -> None:
        self.tokens += [*observation, *turn.token_ids]
        self.log_probs += [*[0.0] * len(observation), *turn.log_probs]
        self.chosen += [*[False] * len(observation), *[True] * len(turn.token_ids)]
        self.version = turn.version if self.turns == 0 else self.version
        self.turns += 1
        self.finish_reason = turn.finish_reason

    def to_response(self) -> Response:
        return Response(
            self.tokens,
            self.log_probs,
            self.chosen,
            self.turns,
            self.finish_reason,
            self.prompt,
            version=self.version,
        )


@dataclass(eq=False)
class _Turn:
    """A turn of the policy, which a later request can continue from."""

    sequence: _Sequence
    end: int
    """Number of tokens of the sequence up to the end of the turn."""
    token_ids: Sequence[int]
    is_continued: bool = False
    """Whether a request of the same sequence follows, or waits for its response."""


@dataclass(frozen=True)
class Placed:
    """Where a request belongs in its episode, before its text is tokenized."""

    messages: list[Message]
    """In the schema of chat templates."""
    tools: Sequence[Mapping[str, Any]]
    count: int
    """Number of its messages up to `turn`."""
    turn: _Turn | None
    """The turn that it continues."""
    key: bytes
    """The key of its tools and messages."""

    @property
    def before(self) -> tuple[int, ...]:
        """The tokens up to the end of `turn`."""
        return (*self.turn.sequence.prompt, *self.turn.sequence.tokens[: self.turn.end]) if self.turn else ()

    @property
    def begins(self) -> bool:
        """Whether it has no turn of the policy."""
        return all(message["role"] in ("system", "user") for message in self.messages)

    @property
    def length(self) -> int:
        """Approximate number of characters that are tokenized."""
        return sum(len(str(each)) for each in [*([] if self.turn else self.tools), *self.messages[self.count :]])


@dataclass(frozen=True)
class Pending:
    """A request that waits for its response."""

    number: int
    """The number of the request in its episode, from 0."""
    context: tuple[int, ...]
    """The tokens of the request."""
    max_tokens: int
    """Maximum number of tokens of the response."""
    sequence: _Sequence
    observation: tuple[int, ...]
    """The tokens of the request after the sequence so far."""
    previous: _Turn | None
    """The turn before it in its sequence."""
    key: bytes
    """The key of its tools and messages."""


class AgentTranscript:
    """The sequences of one episode.

    A request whose messages begin with an earlier request's messages and its response has their tokens, followed by the
    tokens of its further messages. It extends the sequence of that response, unless another request did: then it begins
    a sequence, whose prompt contains these tokens. A request with a changed history begins a sequence as well.

    A side request, such as one for a title, is not the work that the reward judges: it has no tools and no turn of the
    policy, no later request has its response, and another request of the episode has tools.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None, limits: AgentLimits) -> None:
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._limits = limits
        self._sequences: list[_Sequence] = []
        self._completed = 0
        self._turns: dict[bytes, _Turn] = {}
        self._requests = 0
        self.has_reached_limit = False
        """Whether a request was rejected because of the limits."""

    def place(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Placed:
        """Return where a request belongs. Raises RequestError."""
        given = to_template_messages(messages)
        keys = list(accumulate([tools, *given], _extend_key, initial=b""))[1:]  # of the tools and 0, 1, … messages
        count = next((count for count in range(len(given), 0, -1) if keys[count] in self._turns), 0)
        return Placed(given, tools, count, self._turns.get(keys[count]), keys[-1])

    def tokenize(self, placed: Placed) -> tuple[int, ...]:
        """Return the tokens of a request after the turn before it. Any thread can call it. Raises RequestError."""
        try:
            if placed.turn is not None:
                observation = tokenize_observation(
                    placed.messages[placed.count :],
                    placed.turn.token_ids,
                    self._tokenizer,
                    is_chat=True,
                    chat_template=self._chat_template,
                )
                return tuple(observation)
            text = chat_text(placed.messages, self._tokenizer, self._chat_template, tools=placed.tools)
            return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        except (ValueError, TypeError) as error:
            raise RequestError(str(error), param="messages") from None

    def count_tokens(self, placed: Placed, rest: Sequence[int]) -> int:
        """Return the number of tokens of a request, whose tokens after the turn before it are `rest`."""
        return len(placed.before) + len(rest)

    def check_requests(self) -> None:
        """Raise RequestError if the episode has had all its requests."""
        if self._requests == self._limits.max_requests:
            maximum = f"rollout.multiTurn.maxTurns is {self._limits.max_requests}"
            raise self._reach_limit(f"The episode has had all its requests: {maximum}.", "max_turns_exceeded")

    def begin(self, placed: Placed, rest: tuple[int, ...]) -> Pending:
        """Add a request with its tokens from `tokenize`: `complete` or `cancel` must follow. Raises RequestError."""
        self.check_requests()
        turn = placed.turn if placed.turn and not placed.turn.is_continued else None
        observation = rest if turn else ()
        sequence = turn.sequence if turn else _Sequence((*placed.before, *rest), bool(placed.tools), placed.begins)
        if turn is None and len(sequence.prompt) > self._limits.max_prompt_length:
            maximum = f"data.maxPromptLength is {self._limits.max_prompt_length}"
            raise self._exceed(f"The messages have {len(sequence.prompt)} tokens: {maximum}.")
        left = self._limits.max_response_length - len(sequence.tokens) - len(observation)
        if left <= 0:
            maximum = f"data.maxResponseLength is {self._limits.max_response_length}"
            raise self._exceed(f"The messages after the first request leave no token for a response: {maximum}.")
        if turn is not None:
            turn.is_continued = True
        self._requests += 1
        self._mark_used(placed.messages)
        context = (*sequence.prompt, *sequence.tokens, *observation)
        return Pending(self._requests - 1, context, left, sequence, observation, turn, placed.key)

    def _mark_used(self, messages: Sequence[Message]) -> None:
        apart = [sequence for sequence in self._sequences if sequence.is_apart and sequence.text]
        if apart:
            text = "\n".join(message["content"] for message in messages)
            for sequence in apart:
                sequence.is_used = sequence.text in text

    def complete(self, pending: Pending, turn: Response, message: Message) -> None:
        """Add the response to a request, and the message that the agent gets."""
        if not pending.sequence.turns:
            self._sequences.append(pending.sequence)
        pending.sequence.append(pending.observation, turn)
        (given,) = to_template_messages([message])
        self._completed += 1
        pending.sequence.latest = self._completed
        pending.sequence.text = given["content"].strip()
        self._turns[_extend_key(pending.key, given)] = _Turn(
            pending.sequence, len(pending.sequence.tokens), turn.token_ids
        )

    def cancel(self, pending: Pending) -> None:
        """Remove a request that gets no response. The same request may follow."""
        self._requests -= 1
        if pending.previous is not None:
            pending.previous.is_continued = False

    def end(self) -> Response | None:
        """Return all sequences, or None if the agent made no request that had a response."""
        if not self._sequences:
            return None
        has_tools = any(each.has_tools for each in self._sequences)
        side = [each for each in self._sequences if has_tools and each.is_apart]
        work = [each for each in self._sequences if each not in side]
        last = max(work, key=lambda each: each.latest)
        return replace(
            last.to_response(),
            finish_reason="length" if self.has_reached_limit else last.finish_reason,
            earlier=tuple(each.to_response() for each in work if each is not last),
            side=tuple(each.to_response() for each in side),
        )

    def _exceed(self, problem: str) -> RequestError:
        return self._reach_limit(problem, "context_length_exceeded")

    def _reach_limit(self, problem: str, code: str) -> RequestError:
        self.has_reached_limit = True
        return RequestError(problem, code, param="messages")


def _extend_key(key: bytes, content: Any) -> bytes:
    """Return the key of a history that is followed by `content`."""
    return hashlib.blake2b(key + json.dumps(content, sort_keys=True).encode(), digest_size=16).digest()
