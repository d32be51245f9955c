"""The bench counts the tokens that a prefix cache of whole blocks has."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_bench.prefix_cache import (
    BLOCK,
    OBSERVATION,
    PROMPT_TOKENS,
    PROMPTS,
    TURN_TOKENS,
    TURNS,
    N,
    Recorder,
    generate_groups,
    hold_conversations,
)

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import Sampling

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=TURNS * TURN_TOKENS, stop_token_ids=())


class Policy:
    """A Sampler whose turns have all tokens that they may have."""

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """As in Sampler."""
        assert max_tokens is not None
        return Response((97,) * max_tokens, (-1.0,) * max_tokens, finish_reason="length")


def whole_blocks(tokens: int) -> int:
    """The tokens of the whole blocks before the last token, which vLLM computes in any case."""
    return (tokens - 1) // BLOCK * BLOCK


async def test_all_but_the_first_response_of_a_group_have_its_prompt() -> None:
    recorder = Recorder(Policy())
    await generate_groups(recorder, SAMPLING)
    assert recorder.found == PROMPTS * (N - 1) * whole_blocks(PROMPT_TOKENS)


async def test_a_turn_has_all_that_came_before() -> None:
    recorder = Recorder(Policy())
    await hold_conversations(recorder, SAMPLING)
    turn = TURN_TOKENS + len(OBSERVATION)
    before = [PROMPT_TOKENS + number * turn + TURN_TOKENS for number in range(TURNS - 1)]
    assert recorder.found == PROMPTS * sum(map(whole_blocks, before))
