"""Verification of a weight sync from the policy to a rollout engine: a sync may fail without an error. Pure."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.weight_sums import Sums

_log = logging.getLogger(__name__)

MAX_DIFFERENCE = {"float32": 1e-4, "bfloat16": 5e-2, "fp8": 1e-1}
"""Maximum mean difference of log-probabilities, by format of the engine's weights. Measured with tiny
models on the CPU: 1e-6 in float32, 2e-2 in FP8."""
MAX_NAMED = 8
"""Number of stale parts that an error names."""


class StaleWeightsError(TrainingError):
    """The rollout engine's weights differ from the policy's."""


class Verification:
    """Verifies the syncs of one engine.

    Log-probabilities of probe sequences verify that engine and policy compute the same up to rounding. In bfloat16,
    rounding hides an optimizer step, so the sums over the weights sent and the weights held are compared as well.
    """

    def __init__(self, held: Sums, dtype: str) -> None:
        """held: the sums over the weights of the engine before the first sync. dtype: of the weights that are sent, or
        fp8 if the engine quantizes them."""
        self._before: tuple[Sums, Sums] = ({}, held)
        self._dtype = dtype

    def verify(self, sent: Sums, held: Sums, *, expected: Sequence[float], actual: Sequence[float]) -> float:
        """Verify a sync from the sums and from the log-probabilities of the probe tokens in policy and engine.

        Returns the mean difference of log-probabilities. Raises StaleWeightsError.
        """
        difference = compare_log_probs(expected, actual, self._dtype)
        if stale := find_stale_parts((sent, held), self._before):
            raise StaleWeightsError(
                "Stale weights in the rollout engine: after a weight sync its weights differ from those that were sent "
                f"({_join(stale)}), so it does not sample from the policy. Try rollout.engine: transformers, and "
                "report the versions of torch and vLLM."
            )
        self._before = (sent, held)
        return difference


def find_stale_parts(now: tuple[Sums, Sums], before: tuple[Sums, Sums]) -> list[str]:
    """Return the parts whose weights differ from those sent, from the sums (sent, held) of this sync and the last.

    A part is in sync if its sums are equal. An engine may store parts in another format, split or quantized: their sums
    always differ, and together they are in sync if they changed exactly when the weights sent for them changed.
    """
    (sent, held), (sent_before, held_before) = now, before
    others = [part for part in sent if part in held and sent[part] != held[part]]
    stale = [part for part in others if sent_before.get(part) == held_before[part]]
    if not stale:
        sent_changed = any(sent[part] != sent_before.get(part) for part in others)
        held_changed = any(held[part] != held_before[part] for part in others)
        stale = others if sent_changed != held_changed else []
    return stale


def describe_wrong_layers(layers: Sequence[str]) -> str:
    """Return the message for layers that are not the weights sent, rounded to FP8 (rollout.quantization)."""
    return (
        "Stale weights in the rollout engine: after a weight sync its weights in FP8 differ from those that were sent "
        f"({_join(layers)}), so it does not sample from the policy. Remove rollout.quantization, and report the "
        "versions of torch and vLLM."
    )


def _join(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_NAMED
    return "; ".join([*parts[:MAX_NAMED], *([f"{more} more"] if more > 0 else [])])


def build_probe(prompts: Sequence[Prompt]) -> list[list[int]]:
    """Build the token sequences to compare log-probabilities on. A prompt of one token is doubled: two are needed."""
    return [list(prompt.token_ids if len(prompt.token_ids) > 1 else prompt.token_ids * 2) for prompt in prompts]


def pad_probe(sequences: Sequence[Sequence[int]]) -> Sequences:
    """Build sequences in which all tokens but the first are the response to the first."""
    return Sequences.pad([tokens[:1] for tokens in sequences], [tokens[1:] for tokens in sequences], pad_token_id=0)


def compare_log_probs(expected: Sequence[float], actual: Sequence[float], dtype: str) -> float:
    """Return the mean difference between the log-probabilities of the probe tokens in policy and engine.

    A difference above MAX_DIFFERENCE is an error in float32. It is a warning in bfloat16, where kernels that round
    differently can cause it (vLLM issue 18352: a mean of 0.046), and in FP8, which rounds weights and activations. NaN
    is always an error: StaleWeightsError.
    """
    difference = float((torch.tensor(actual) - torch.tensor(expected)).abs().mean())
    if difference <= MAX_DIFFERENCE[dtype]:
        return difference
    found = (
        f"after a weight sync its log-probabilities differ from the policy's by {difference:.2g} on average (maximum "
        f"for {dtype}: {MAX_DIFFERENCE[dtype]:g})"
    )
    if dtype == "float32" or math.isnan(difference):
        raise StaleWeightsError(
            f"Stale weights in the rollout engine: {found}, so it does not sample from the policy. Try "
            "rollout.engine: transformers, and report the versions of torch and vLLM."
        )
    _log.warning("the rollout engine computes other log-probabilities than the policy: %s", found)
    return difference
