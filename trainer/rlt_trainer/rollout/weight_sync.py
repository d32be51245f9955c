"""Verification of a weight sync from the policy to a rollout engine: a sync may fail without an error. Pure.

Three comparisons find what the others cannot:

- Sums over each weight, with the place of each element (`find_moved_weights`), for the weights whose place in the
  engine is known. They find any change, also one that log-probabilities hide in bfloat16, from the first sync.
- Sums over each part of the model, regardless of the layout (`find_stale_parts`), for all weights. Kernels may store a
  weight in their own order, and these sums find every change but an exchange inside of a part.
- Log-probabilities of probe sequences (`compare_log_probs`), for what the engine computes. They find garbage that the
  sums cannot: exchanged elements at unknown places, and kernels that read other memory.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from itertools import cycle, islice
from statistics import median

import torch

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.weight_channel import Received
from rlt_trainer.rollout.weight_sums import MODULUS, Sums

_log = logging.getLogger(__name__)

MAX_DIFFERENCE = {"float32": 1e-4, "bfloat16": 5e-2, "fp8": 1e-1}
"""Expected maximum mean difference of log-probabilities, by format of the engine's weights. Measured with tiny
models on the CPU: 1e-6 in float32, 2e-2 in FP8."""
GARBAGE_DIFFERENCE = 0.5
"""Mean difference of log-probabilities in nats that rounding does not cause (vLLM issue 18352: 0.046 in bfloat16)."""
GARBAGE_FACTOR = 10
"""The same, as a multiple of the engine's median over earlier syncs."""
PROBE_TOKENS = 256
"""Minimum number of tokens whose log-probabilities are compared. Measured with a tiny GLM-4 MoE in bfloat16 on the CPU:
the difference of a token is 0.0018 on average, with a standard deviation of 0.0033. A mean over 12 tokens is between
0.0006 and 0.0067, over 256 tokens it has a standard deviation of 0.0002. A token that another expert computes may
differ by nats: it takes 13 tokens with 10 nats each, and not a single one, to reach GARBAGE_DIFFERENCE."""
PROBE_LENGTH = 65
"""Maximum number of tokens in a probe sequence. All but the first are compared."""
MAX_NAMED = 8
"""Number of weights or parts that an error names."""


class StaleWeightsError(TrainingError):
    """The rollout engine's weights differ from the policy's."""


class Verification:
    """Verifies the syncs of one engine."""

    def __init__(self, held: Sums, dtype: str) -> None:
        """held: the sums over the weights of the engine before the first sync. dtype: of the weights that are sent, or
        fp8 if the engine quantizes them."""
        self._before: tuple[Sums, Sums] = (Sums(), held)
        self._dtype = dtype
        self._differences: list[float] = []

    def verify(self, sent: Sums, held: Sums, *, expected: Sequence[float], actual: Sequence[float]) -> float:
        """Verify a sync from the sums and from the log-probabilities of the probe tokens in policy and engine.

        Returns the mean difference of log-probabilities. Raises StaleWeightsError.
        """
        stale = find_moved_weights(sent, held) or find_stale_parts((sent, held), self._before)
        if stale:
            raise StaleWeightsError(
                "Stale weights in the rollout engine: after a weight sync its weights differ from those that were sent "
                f"({_join(stale)}), so it does not sample from the policy. Try rollout.engine: transformers, and "
                "report the versions of torch and vLLM."
            )
        difference = compare_log_probs(expected, actual, self._dtype, self._differences)
        self._before = (sent, held)
        self._differences.append(difference)
        return difference


def find_moved_weights(sent: Sums, held: Sums) -> list[str]:
    """Return the weights whose elements differ from those sent, or are at other places.

    Weights that only one side has are among them: they were not received, or not sent. A weight of which the engine has
    no whole number of replicas at known places is left to the other comparisons, as are all weights of an engine that
    knows no place.
    """
    if not held.weights:
        return []
    moved = [name for name in (sent.weights | held.weights) if not (name in sent.weights and name in held.weights)]
    for name, (value, size) in sent.weights.items():
        total, elements = held.weights.get(name, (0, 0))
        if elements % size == 0 and (value * (elements // size) - total) % MODULUS:
            moved.append(name)
    return moved


def find_stale_parts(now: tuple[Sums, Sums], before: tuple[Sums, Sums]) -> list[str]:
    """Return the parts whose weights differ from those sent, from the sums (sent, held) of this sync and the last.

    A part is in sync if its sums are equal. An engine may store parts in another format, split or quantized: their sums
    always differ, and together they are in sync if they changed exactly when the weights sent for them changed.
    """
    (sent, held), (sent_before, held_before) = [(each[0].parts, each[1].parts) for each in (now, before)]
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


def describe_damage(received: Collection[Received], version: int) -> str:
    """Return the message for engines that have not received the weights of `version` as they were sent. "": none."""
    found = dict.fromkeys(each for engine in received for each in engine.damaged)
    if not found:
        found = dict.fromkeys(
            f"weights of version {engine.version} instead of {version}"
            for engine in received
            if engine.version != version
        )
    if not found:
        return ""
    return (
        f"Stale weights in the rollout engine: they did not arrive as they were sent ({_join(list(found))}). Check the "
        "network between the worker groups; the run can be resumed from its latest checkpoint."
    )


def _join(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_NAMED
    return "; ".join([*parts[:MAX_NAMED], *([f"{more} more"] if more > 0 else [])])


def build_probe(prompts: Sequence[Prompt], max_length: int) -> list[list[int]]:
    """Build the token sequences to compare log-probabilities on: the prompts one after the other, and again, cut.

    At least PROBE_TOKENS in sequences of equal length, at most `max_length` (2 or more).
    """
    length = min(PROBE_LENGTH, max_length)
    tokens = cycle(token for prompt in prompts for token in prompt.token_ids)
    return [list(islice(tokens, length)) for _ in range(math.ceil(PROBE_TOKENS / (length - 1)))]


def pad_probe(sequences: Sequence[Sequence[int]]) -> Sequences:
    """Build sequences in which all tokens but the first are the response to the first."""
    return Sequences.pad([tokens[:1] for tokens in sequences], [tokens[1:] for tokens in sequences], pad_token_id=0)


def compare_log_probs(
    expected: Sequence[float], actual: Sequence[float], dtype: str, earlier: Sequence[float] = ()
) -> float:
    """Return the mean difference between the log-probabilities of the probe tokens in policy and engine.

    A difference above MAX_DIFFERENCE is an error in float32. It is a warning in bfloat16, where kernels that round
    differently can cause it (vLLM issue 18352: a mean of 0.046), and in FP8, which rounds weights and activations. NaN,
    and a difference above both GARBAGE_DIFFERENCE and GARBAGE_FACTOR times the median of the `earlier` ones, are always
    errors: StaleWeightsError.
    """
    difference = float((torch.tensor(actual) - torch.tensor(expected)).abs().mean())
    rounding = MAX_DIFFERENCE[dtype]
    if difference <= rounding:
        return difference
    garbage = max(GARBAGE_DIFFERENCE, GARBAGE_FACTOR * median(earlier or [0.0]))
    limit = rounding if dtype == "float32" else garbage
    is_error = not difference <= limit  # NaN is
    found = (
        f"after a weight sync its log-probabilities differ from the policy's by {difference:.2g} on average (maximum "
        f"for {dtype}: {limit if is_error else rounding:g})"
    )
    if is_error:
        raise StaleWeightsError(
            f"Stale weights in the rollout engine: {found}, so it does not sample from the policy. Try "
            "rollout.engine: transformers, and report the versions of torch and vLLM."
        )
    _log.warning("the rollout engine computes other log-probabilities than the policy: %s", found)
    return difference
