"""Multi-turn conversations, as tokens: generated tokens are never tokenized again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.data.prompt import Messages, Prompt
from rlt_trainer.environments.observation import tokenize_observation
from rlt_trainer.environments.session import SampledTurn, Session, SessionError
from rlt_trainer.rollout.engine import Sampling, derive_seed
from rlt_trainer.rollout.sampler import Sampler


@dataclass(frozen=True)
class Episode:
    """A completed conversation."""

    response: Response
    """All turns and the observations between them. `chosen` is False for tokens of observations."""
    reward: float | None
    """The sum of the environment's rewards. None: it gives no rewards."""
    failure: str | None
    """Why the environment or a tool failed, if it did. The response is then left out of the update."""


@dataclass(frozen=True)
class ConversationLimits:
    """Limits of one conversation."""

    max_turns: int
    """Maximum number of turns of the policy."""
    max_response_length: int
    """Maximum number of tokens of turns and observations together."""


async def converse(
    sampler: Sampler,
    session: Session,
    prompt: Prompt,
    *,
    seed: int,
    sampling: Sampling,
    tokenizer: PreTrainedTokenizerBase,
    limits: ConversationLimits,
    chat_template: str | None = None,
) -> Episode:
    """Run one conversation. An observation that leaves no token for another turn is not appended: the conversation ends
    with finish reason "length". Raises EngineError.
    """
    said = _Transcript(limits.max_response_length)

    def observe(messages: Messages, turn: Sequence[int]) -> bool:
        is_chat = prompt.messages is not None
        return said.observe(
            tokenize_observation(messages, turn, tokenizer, is_chat=is_chat, chat_template=chat_template)
        )

    try:
        opening = await session.reset()
        if opening and not observe(opening, ()):
            raise SessionError(f"its first observation leaves no token of {limits.max_response_length} for a turn")
        while True:
            context = [*prompt.token_ids, *said.tokens]
            left = limits.max_response_length - len(said.tokens)
            turn_seed = derive_seed(seed, len(said.tokens))
            turn = await sampler.sample(context, seed=turn_seed, sampling=sampling, max_tokens=left)
            said.add_turn(turn)
            if turn.finish_reason != "stop":
                break
            reply = await session.step(read_tokens(context, turn.token_ids, sampling, tokenizer))
            if reply.reward is not None:
                said.rewards.append(require_finite(reply.reward))
            if reply.is_done or said.turns == limits.max_turns:
                break
            if not observe(reply.messages, turn.token_ids):
                break
    except SessionError as error:
        return said.end("abort", failure=str(error))
    finally:
        await session.close()
    return said.end(said.finish_reason)


def read_tokens(
    context: Sequence[int], token_ids: Sequence[int], sampling: Sampling, tokenizer: PreTrainedTokenizerBase
) -> SampledTurn:
    """Return the turn with these tokens, which follows `context`."""
    is_ended = len(token_ids) > 0 and token_ids[-1] in sampling.stop_token_ids
    return SampledTurn(context, token_ids, is_ended, str(tokenizer.decode(list(token_ids), skip_special_tokens=True)))


@dataclass
class _Transcript:
    """The tokens of a conversation so far, and its rewards."""

    max_length: int
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    turns: int = 0
    finish_reason: FinishReason = "stop"
    version: int | None = None

    def add_turn(self, turn: Response) -> None:
        """Append a turn of the policy."""
        self._append(turn.token_ids, turn.log_probs, is_chosen=True)
        self.version = turn.version if self.turns == 0 else self.version
        self.turns += 1
        self.finish_reason = turn.finish_reason

    def observe(self, token_ids: Sequence[int]) -> bool:
        """Append an observation and return True if it leaves a token for another turn. Otherwise the finish reason is
        length."""
        if len(self.tokens) + len(token_ids) >= self.max_length:
            self.finish_reason = "length"
            return False
        self._append(token_ids, [0.0] * len(token_ids), is_chosen=False)
        return True

    def end(self, finish_reason: FinishReason, *, failure: str | None = None) -> Episode:
        """Return the completed conversation."""
        response = Response(self.tokens, self.log_probs, self.chosen, self.turns, finish_reason, version=self.version)
        return Episode(response, sum(self.rewards) if self.rewards else None, failure)

    def _append(self, token_ids: Sequence[int], log_probs: Sequence[float], *, is_chosen: bool) -> None:
        self.tokens += token_ids
        self.log_probs += log_probs
        self.chosen += [is_chosen] * len(token_ids)


def require_finite(reward: float) -> float:
    """Return the reward. Raises SessionError if it is not finite."""
    if not math.isfinite(reward):
        raise SessionError(f"the environment returned the reward {reward}, which is not finite")
    return reward
