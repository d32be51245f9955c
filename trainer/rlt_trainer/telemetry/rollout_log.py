"""What is kept of a step's responses, for people to read. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt

ALL = 256
"""Of a step with no more responses than this all are kept."""
EXTREMES = 32
"""Of a larger one so many with the highest and so many with the lowest rewards, and a sample up to ALL."""

Line = dict[str, Any]


def rollout_lines(
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    rewards: Sequence[float],
    *,
    by_reward: Mapping[str, Sequence[float]] | None = None,
    segments: Sequence[list[Line]] | None = None,
) -> list[Line]:
    """A line for each response. Rewards that failed are NaN. `segments` are those of `segments_of`."""
    return [
        {
            "index": prompt.index,
            "data_source": prompt.data_source,
            "prompt": prompt.text,
            "response": text,
            "ground_truth": prompt.ground_truth,
            "reward": reward,
            **({"rewards": {name: values[row] for name, values in by_reward.items()}} if by_reward else {}),
            **({"segments": segments[row]} if segments else {}),
        }
        for row, (prompt, text, reward) in enumerate(zip(prompts, texts, rewards, strict=True))
    ]


def segments_of(sequences: Sequences, decode: Callable[[list[int]], str]) -> list[list[Line]]:
    """For each response its runs of tokens that the policy chose ("learned": true) and of an environment's in turns."""
    return [
        list(_runs(tokens[attention].tolist(), mask[attention].tolist(), decode))
        for tokens, attention, mask in zip(
            sequences.responses, sequences.response_attention, sequences.response_mask, strict=True
        )
    ]


def kept(lines: Sequence[Line]) -> list[Line]:
    """The best, the worst and an evenly spread sample of a large step, in their order, each saying why it is "kept".

    A response whose reward failed is none of the best and worst; the sample may hold it.
    """
    if len(lines) <= ALL:
        return list(lines)
    scored = [row for row, line in enumerate(lines) if math.isfinite(line["reward"])]
    by_reward = sorted(scored, key=lambda row: lines[row]["reward"], reverse=True)
    why = dict.fromkeys(by_reward[-EXTREMES:], "worst") | dict.fromkeys(by_reward[:EXTREMES], "best")
    rest = [row for row in range(len(lines)) if row not in why]
    places = ALL - len(why)
    why |= dict.fromkeys((rest[place * len(rest) // places] for place in range(places)), "sample")
    return [{**lines[row], "kept": why[row]} for row in sorted(why)]


def _runs(tokens: list[int], mask: list[bool], decode: Callable[[list[int]], str]) -> Iterator[Line]:
    for learned, run in groupby(zip(tokens, mask, strict=True), key=lambda pair: pair[1]):
        yield {"text": decode([token for token, _ in run]), "learned": learned}
