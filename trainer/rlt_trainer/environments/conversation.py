"""Conversations of several turns with an environment: token in, token out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.environment import Environment
from rlt_trainer.environments.observation import observation_tokens
from rlt_trainer.environments.time_limit import TimeLimit
from rlt_trainer.rollout.engine import FinishReason, Response, RolloutEngine, Sampling, continuation_seed


@dataclass(frozen=True)
class Episode:
    """A conversation that is over."""

    response: Response
    """All turns in one, with the observations between them, which the policy did not choose."""
    reward: float | None
    """What the environment gave, added up. None: it gives no rewards."""
    failure: str | None
    """What the environment raised: the response is to be left out of the learning."""


def converse(
    engine: RolloutEngine,
    prompts: Sequence[Prompt],
    seeds: Sequence[int],
    sampling: Sampling | None = None,
    *,
    environment: Callable[[], Environment],
    tokenizer: PreTrainedTokenizerBase,
    max_turns: int,
    max_response_length: int,
    timeout_seconds: float,
    chat_template: str | None = None,
) -> list[Episode]:
    """One conversation on each prompt, all of them in step: the policy speaks at most `max_turns` times.

    Turns and observations together have at most `max_response_length` tokens. An observation that leaves no room for
    another turn is not appended: the conversation ends, with finish reason "length". An environment that takes longer
    than `timeout_seconds` for one answer has failed. Raises EngineError.
    """
    limit = TimeLimit(timeout_seconds)
    conversations = [
        _Conversation(prompt, environment, tokenizer, max_turns, max_response_length, limit, chat_template)
        for prompt in prompts
    ]
    while running := [(each, seed) for each, seed in zip(conversations, seeds, strict=True) if not each.is_over]:
        turns = engine.generate(
            [each.context for each, _ in running],
            [continuation_seed(seed, len(each.tokens)) for each, seed in running],
            sampling,
            max_tokens=[each.room for each, _ in running],
        )
        for (each, _), turn in zip(running, turns, strict=True):
            each.take_turn(turn)
    limit.close()
    return [each.episode() for each in conversations]


class _Conversation:
    def __init__(
        self,
        prompt: Prompt,
        environment: Callable[[], Environment],
        tokenizer: PreTrainedTokenizerBase,
        max_turns: int,
        max_length: int,
        limit: TimeLimit,
        chat_template: str | None,
    ) -> None:
        self.tokens: list[int] = []
        self.is_over = False
        self._log_probs: list[float] = []
        self._chosen: list[bool] = []
        self._turns = 0
        self._finish: FinishReason = "stop"
        self._rewards: list[float] = []
        self._failure: str | None = None
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._max_turns = max_turns
        self._max_length = max_length
        self._limit = limit
        self._chat_template = chat_template
        try:
            self._environment = limit.call(environment)
            opening = limit.call(self._environment.reset, prompt)
            if opening is not None:
                self._observe(opening, ())
            if self.is_over:
                raise ValueError(f"the environment's opening leaves no room in {max_length} tokens")
        except Exception as error:
            self._fail(error)

    @property
    def context(self) -> list[int]:
        """What the policy goes on from."""
        return [*self._prompt.token_ids, *self.tokens]

    @property
    def room(self) -> int:
        """Tokens that may follow."""
        return self._max_length - len(self.tokens)

    def take_turn(self, turn: Response) -> None:
        """Append what the policy said, and what the environment says to that."""
        self._append(turn.token_ids, turn.log_probs, is_chosen=True)
        self._turns += 1
        self._finish = turn.finish_reason
        if turn.finish_reason != "stop":
            self.is_over = True
            return
        text = str(self._tokenizer.decode(list(turn.token_ids), skip_special_tokens=True))
        try:
            observation, reward, is_done = self._limit.call(self._environment.step, text)
            if reward is not None:
                self._rewards.append(finite(reward))
        except Exception as error:
            self._fail(error)
            return
        self.is_over = is_done or self._turns == self._max_turns
        if not self.is_over:
            self._observe(observation, turn.token_ids)

    def episode(self) -> Episode:
        """What has become of it."""
        response = Response(tuple(self.tokens), tuple(self._log_probs), tuple(self._chosen), self._turns, self._finish)
        return Episode(response, sum(self._rewards) if self._rewards else None, self._failure)

    def _observe(self, text: str, said: Sequence[int]) -> None:
        is_chat = self._prompt.messages is not None
        token_ids = observation_tokens(text, said, self._tokenizer, is_chat=is_chat, chat_template=self._chat_template)
        if len(token_ids) < self.room:
            self._append(token_ids, [0.0] * len(token_ids), is_chosen=False)
        else:
            self.is_over, self._finish = True, "length"

    def _append(self, token_ids: Sequence[int], log_probs: Sequence[float], *, is_chosen: bool) -> None:
        self.tokens += token_ids
        self._log_probs += log_probs
        self._chosen += [is_chosen] * len(token_ids)

    def _fail(self, error: Exception) -> None:
        self.is_over, self._finish = True, "abort"
        self._failure = f"{type(error).__name__}: {error}"


def finite(reward: float) -> float:
    """The reward as a number. Raises ValueError for one that is not finite."""
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"the environment gave the reward {number}")
    return number
