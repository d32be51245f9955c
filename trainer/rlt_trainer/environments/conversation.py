"""Multi-turn conversations with an environment, as tokens: generated tokens are never tokenized again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.environment import Environment
from rlt_trainer.environments.observation import tokenize_observation
from rlt_trainer.environments.time_limit import TimeLimit
from rlt_trainer.rollout.engine import RolloutEngine, Sampling, derive_seed


@dataclass(frozen=True)
class Episode:
    """A completed conversation."""

    response: Response
    """All turns and the observations between them. `chosen` is False for tokens of observations."""
    reward: float | None
    """The sum of the environment's rewards. None: it gives no rewards."""
    failure: str | None
    """The exception of the environment, if any. The response is then left out of the update."""


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
    """Run one conversation of at most `max_turns` turns for each prompt. Each turn is one batch over all of them.

    Turns and observations together have at most `max_response_length` tokens. An observation that leaves no token for
    another turn is not appended: the conversation ends with finish reason "length". A call of the environment that
    takes longer than `timeout_seconds` is a failure. Raises EngineError.
    """
    limit = TimeLimit(timeout_seconds)
    conversations = [
        _Conversation(prompt, environment, tokenizer, max_turns, max_response_length, limit, chat_template)
        for prompt in prompts
    ]
    while running := [(each, seed) for each, seed in zip(conversations, seeds, strict=True) if not each.is_over]:
        turns = engine.generate(
            [each.context for each, _ in running],
            [derive_seed(seed, len(each.tokens)) for each, seed in running],
            sampling,
            max_tokens=[each.remaining_tokens for each, _ in running],
        )
        for (each, _), turn in zip(running, turns, strict=True):
            each.add_turn(turn)
    limit.close()
    return [each.build_episode() for each in conversations]


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
        self._finish_reason: FinishReason = "stop"
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
                self._append_observation(opening, ())
            if self.is_over:
                raise ValueError(f"the environment's first observation leaves no token of {max_length} for a turn")
        except Exception as error:
            self._fail(error)

    @property
    def context(self) -> list[int]:
        """The tokens that the next turn is generated from."""
        return [*self._prompt.token_ids, *self.tokens]

    @property
    def remaining_tokens(self) -> int:
        """Maximum number of tokens that can be appended."""
        return self._max_length - len(self.tokens)

    def add_turn(self, turn: Response) -> None:
        """Append a turn of the policy and the environment's observation."""
        self._append(turn.token_ids, turn.log_probs, is_chosen=True)
        self._turns += 1
        self._finish_reason = turn.finish_reason
        if turn.finish_reason != "stop":
            self.is_over = True
            return
        text = str(self._tokenizer.decode(list(turn.token_ids), skip_special_tokens=True))
        try:
            observation, reward, is_done = self._limit.call(self._environment.step, text)
            if reward is not None:
                self._rewards.append(require_finite(reward))
        except Exception as error:
            self._fail(error)
            return
        self.is_over = is_done or self._turns == self._max_turns
        if not self.is_over:
            self._append_observation(observation, turn.token_ids)

    def build_episode(self) -> Episode:
        """Return the completed conversation."""
        response = Response(
            tuple(self.tokens), tuple(self._log_probs), tuple(self._chosen), self._turns, self._finish_reason
        )
        return Episode(response, sum(self._rewards) if self._rewards else None, self._failure)

    def _append_observation(self, text: str, turn: Sequence[int]) -> None:
        is_chat = self._prompt.messages is not None
        token_ids = tokenize_observation(
            text, turn, self._tokenizer, is_chat=is_chat, chat_template=self._chat_template
        )
        if len(token_ids) < self.remaining_tokens:
            self._append(token_ids, [0.0] * len(token_ids), is_chosen=False)
        else:
            self.is_over, self._finish_reason = True, "length"

    def _append(self, token_ids: Sequence[int], log_probs: Sequence[float], *, is_chosen: bool) -> None:
        self.tokens += token_ids
        self._log_probs += log_probs
        self._chosen += [is_chosen] * len(token_ids)

    def _fail(self, error: Exception) -> None:
        self.is_over, self._finish_reason = True, "abort"
        self._failure = f"{type(error).__name__}: {error}"


def require_finite(reward: float) -> float:
    """Convert a reward to a number. Raises ValueError if it is not finite."""
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"the environment returned the reward {number}, which is not finite")
    return number
