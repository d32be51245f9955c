"""Whether the rollout engine has the weights that the policy has: a sync that raised nothing may have done nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.engine import RolloutEngine
from rlt_trainer.sequences import Sequences

MAX_DIFFERENCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""By type of the weights: the largest mean difference of log-probabilities. Measured in float32 on the CPU: 1e-6."""


class StaleWeightsError(TrainingError):
    """The rollout engine's weights are not the policy's."""


def probe(prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token sequences to compare log-probabilities on: of at least two tokens, a single one twice."""
    return [list(prompt.token_ids if len(prompt.token_ids) > 1 else prompt.token_ids * 2) for prompt in prompts]


def as_response(sequences: Sequence[Sequence[int]]) -> Sequences:
    """All tokens but the first as a response to the first."""
    return Sequences.pad([tokens[:1] for tokens in sequences], [tokens[1:] for tokens in sequences], pad_token_id=0)


def verify_weights(engine: RolloutEngine, sequences: list[list[int]], expected: Tensor, dtype: str) -> float:
    """The mean difference between the engine's log-probabilities of a probe and the policy's, [B, T] `expected`.

    Raises StaleWeightsError if it is larger than rounding explains, or not a number.
    """
    mask = as_response(sequences).response_mask
    actual = torch.tensor([value for row in engine.log_probs(sequences) for value in row])
    difference = float((actual - expected[mask]).abs().mean())
    if not difference <= MAX_DIFFERENCE[dtype]:
        raise StaleWeightsError(
            "Stale weights in the rollout engine: after a weight sync its log-probabilities differ from the policy's "
            f"by {difference:.2g} on average, and {MAX_DIFFERENCE[dtype]:g} is allowed for {dtype}. What it generates "
            "is not what is trained. Try rollout.engine: transformers, and report the versions of torch and vLLM."
        )
    return difference
