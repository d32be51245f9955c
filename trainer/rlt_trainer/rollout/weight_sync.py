"""Weight sync from the policy to a rollout engine, with verification: a sync may fail without an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.engine import RolloutEngine
from rlt_trainer.rollout.weight_sums import Sums, add_sums

MAX_DIFFERENCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""Maximum mean difference of log-probabilities, by dtype of the weights. Measured in float32 on the CPU: 1e-6."""


class StaleWeightsError(TrainingError):
    """The rollout engine's weights differ from the policy's."""


class WeightSync:
    """Syncs the policy's weights to one engine, and verifies each sync.

    Log-probabilities of probe sequences verify that engine and policy compute the same up to rounding. In bfloat16,
    rounding hides an optimizer step, so the sums over the weights sent and the weights held are compared as well.
    """

    def __init__(self, engine: RolloutEngine, prompts: Sequence[Prompt], dtype: str) -> None:
        """prompts: the probe sequences. dtype: of the weights that are sent."""
        self._engine = engine
        self._probe = build_probe(prompts)
        self._dtype = dtype
        self._before: tuple[Sums, Sums] = ({}, engine.sum_weights())

    def sync(self, weights: Iterable[tuple[str, Tensor]], expected: Callable[[], Tensor]) -> float:
        """Sync the weights to the engine, and verify them. Returns the mean difference of log-probabilities.

        expected: returns the policy's log-probabilities of the probe, [B, T]; called after the update.
        Raises StaleWeightsError.
        """
        sent: Sums = {}
        self._engine.update_weights(add_sums(weights, sent))
        difference = verify_log_probs(self._engine, self._probe, expected(), self._dtype)
        held = self._engine.sum_weights()
        if stale := find_stale_layers((sent, held), self._before):
            where = ", ".join("embedding, output layer or norm" if each is None else f"layer {each}" for each in stale)
            raise StaleWeightsError(
                "Stale weights in the rollout engine: after a weight sync its weights differ from those that were sent "
                f"({where}), so it does not sample from the policy. Try rollout.engine: transformers, and report the "
                "versions of torch and vLLM."
            )
        self._before = (sent, held)
        return difference


def find_stale_layers(now: tuple[Sums, Sums], before: tuple[Sums, Sums]) -> list[int | None]:
    """Return the layers whose weights differ from those sent, from the sums (sent, held) of this sync and the last.

    A layer is in sync if its sums are equal. An engine may store layers in another format, split or quantized: their
    sums always differ, and together they are in sync if they changed exactly when the weights sent for them changed.
    """
    (sent, held), (sent_before, held_before) = now, before
    others = [layer for layer in sent.keys() & held.keys() if sent[layer] != held[layer]]
    stale = [layer for layer in others if sent_before.get(layer) == held_before[layer]]
    if not stale:
        sent_changed = any(sent[layer] != sent_before.get(layer) for layer in others)
        held_changed = any(held[layer] != held_before[layer] for layer in others)
        stale = others if sent_changed != held_changed else []
    return sorted(stale, key=lambda layer: -1 if layer is None else layer)


def build_probe(prompts: Sequence[Prompt]) -> list[list[int]]:
    """Build the token sequences to compare log-probabilities on. A prompt of one token is doubled: two are needed."""
    return [list(prompt.token_ids if len(prompt.token_ids) > 1 else prompt.token_ids * 2) for prompt in prompts]


def pad_probe(sequences: Sequence[Sequence[int]]) -> Sequences:
    """Build sequences in which all tokens but the first are the response to the first."""
    return Sequences.pad([tokens[:1] for tokens in sequences], [tokens[1:] for tokens in sequences], pad_token_id=0)


def verify_log_probs(engine: RolloutEngine, sequences: list[list[int]], expected: Tensor, dtype: str) -> float:
    """Return the mean difference between the engine's log-probabilities of a probe and the policy's, `expected` [B, T].

    Raises StaleWeightsError if it is above MAX_DIFFERENCE, or NaN.
    """
    mask = pad_probe(sequences).response_mask
    actual = torch.tensor([value for row in engine.log_probs(sequences) for value in row])
    difference = float((actual - expected[mask]).abs().mean())
    if not difference <= MAX_DIFFERENCE[dtype]:
        raise StaleWeightsError(
            "Stale weights in the rollout engine: after a weight sync its log-probabilities differ from the policy's "
            f"by {difference:.2g} on average (maximum for {dtype}: {MAX_DIFFERENCE[dtype]:g}), so it does not sample "
            "from the policy. Try rollout.engine: transformers, and report the versions of torch and vLLM."
        )
    return difference
