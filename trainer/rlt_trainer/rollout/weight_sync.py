"""Whether the rollout engine has the weights that the policy has: a sync that raised nothing may have done nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.engine import RolloutEngine
from rlt_trainer.rollout.weight_sums import Sums, summed

MAX_DIFFERENCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""By type of the weights: the largest mean difference of log-probabilities. Measured in float32 on the CPU: 1e-6."""


class StaleWeightsError(TrainingError):
    """The rollout engine's weights are not the policy's."""


class WeightSync:
    """The way of the policy's weights into one engine.

    Log-probabilities of a probe show that the engine computes what the policy does, but for rounding; in bfloat16 that
    hides an optimizer step. So sums over the weights that were sent and over those that it holds are compared as well.
    """

    def __init__(self, engine: RolloutEngine, prompts: Sequence[Prompt], dtype: str) -> None:
        """`prompts` become the probe. `dtype`: of the weights that are sent."""
        self._engine = engine
        self._probe = probe(prompts)
        self._dtype = dtype
        self._before: tuple[Sums, Sums] = ({}, engine.weight_sums())

    def bring(self, weights: Iterable[tuple[str, Tensor]], expected: Callable[[], Tensor]) -> float:
        """Give the engine the weights, and verify them. Returns the mean difference of log-probabilities.

        `expected`, called afterwards, says the policy's log-probabilities of the probe, [B, T]. Raises
        StaleWeightsError.
        """
        sent: Sums = {}
        self._engine.update_weights(summed(weights, sent))
        difference = verify_log_probs(self._engine, self._probe, expected(), self._dtype)
        held = self._engine.weight_sums()
        if stale := stale_layers((sent, held), self._before):
            where = ", ".join("embedding, output layer or norm" if each is None else f"layer {each}" for each in stale)
            raise StaleWeightsError(
                "Stale weights in the rollout engine: after a weight sync its weights are not those that were sent "
                f"({where}). What it generates is not what is trained. Try rollout.engine: transformers, and report "
                "the versions of torch and vLLM."
            )
        self._before = (sent, held)
        return difference


def stale_layers(now: tuple[Sums, Sums], before: tuple[Sums, Sums]) -> list[int | None]:
    """Layers of which an engine does not hold what it was sent, by the sums (sent, held) of this sync and the last one.

    The sums are equal; or the engine has always kept the layer in a form of its own, cut up or quantised, and then
    these layers together have changed if, and only if, what was sent of them has.
    """
    (sent, held), (sent_before, held_before) = now, before
    others = [layer for layer in sent.keys() & held.keys() if sent[layer] != held[layer]]
    stale = [layer for layer in others if sent_before.get(layer) == held_before[layer]]
    if not stale:
        sent_changed = any(sent[layer] != sent_before.get(layer) for layer in others)
        held_changed = any(held[layer] != held_before[layer] for layer in others)
        stale = others if sent_changed != held_changed else []
    return sorted(stale, key=lambda layer: -1 if layer is None else layer)


def probe(prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token sequences to compare log-probabilities on: of at least two tokens, a single one twice."""
    return [list(prompt.token_ids if len(prompt.token_ids) > 1 else prompt.token_ids * 2) for prompt in prompts]


def as_response(sequences: Sequence[Sequence[int]]) -> Sequences:
    """All tokens but the first as a response to the first."""
    return Sequences.pad([tokens[:1] for tokens in sequences], [tokens[1:] for tokens in sequences], pad_token_id=0)


def verify_log_probs(engine: RolloutEngine, sequences: list[list[int]], expected: Tensor, dtype: str) -> float:
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
