"""The lines of rollouts/step-N.jsonl: a step's responses, or a selection of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.batches.trajectories import Trajectories
from rlt_trainer.data.images import FOLDER
from rlt_trainer.data.prompt import Prompt

MAX_ROLLOUTS = 256
"""Maximum number of responses in the file of a step."""
NUM_EXTREMES = 32
"""Number of responses with the highest rewards, and with the lowest, that are kept of a larger step."""

Line = dict[str, Any]


def build_rollout_lines(
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    rewards: Sequence[float],
    *,
    responses: Sequence[Response],
    advantages: Sequence[float],
    by_reward: Mapping[str, Sequence[float]] | None = None,
    failures: Sequence[str | None] = (),
    segments: Sequence[list[Line]] | None = None,
    sandboxes: Sequence[Mapping[str, Any] | None] = (),
) -> list[Line]:
    """Build a line for each response. A failed reward, and the advantage then, is NaN.

    `advantages`: TrainingBatch.advantages. `failures`: Scores.failures. `segments` come from split_segments. "tokens"
    counts the tokens of all the response's sequences, with an environment's tokens. "finish_reason" is the latest
    turn's. "sandbox" is RolloutBatch.sandboxes. "images" refers to the images of the prompt: data.images.name_images.
    """
    return [
        {
            "index": prompt.index,
            "data_source": prompt.data_source,
            "prompt": prompt.text,
            "response": text,
            **({"images": list(prompt.image_names)} if prompt.image_names else {}),
            "ground_truth": prompt.ground_truth,
            "reward": reward,
            "advantage": advantages[row],
            "tokens": sum(len(sequence.token_ids) for sequence in responses[row].sequences),
            "finish_reason": responses[row].finish_reason,
            **({"rewards": {name: values[row] for name, values in by_reward.items()}} if by_reward else {}),
            **({"failure": failures[row]} if failures and failures[row] else {}),
            **({"sandbox": sandboxes[row]} if sandboxes and sandboxes[row] else {}),
            **({"segments": segments[row]} if segments else {}),
        }
        for row, (prompt, text, reward) in enumerate(zip(prompts, texts, rewards, strict=True))
    ]


def collect_images(prompts: Sequence[Prompt]) -> dict[str, bytes]:
    """Return the images whose bytes are in the data, by the names in their lines."""
    pairs = (pair for prompt in prompts for pair in zip(prompt.image_names, prompt.images, strict=True))
    return {name: image for name, image in pairs if name.startswith(f"{FOLDER}/")}


def split_segments(
    sequences: Sequences,
    decode: Callable[[list[int]], str],
    trajectories: Trajectories,
    *,
    side: Sequence[tuple[Response, ...]],
    has_prompts: bool,
) -> list[list[Line]]:
    """Split each response into segments of the policy's tokens ("learned": true) and of the environment's.

    The first segments are its requests that are not trained on ("side": true), of Response.side. has_prompts: the
    prompts of the sequences are segments, too, because they are not from the data.
    """
    by_trajectory: list[list[Line]] = [
        [{"text": decode([*(each.prompt or ()), *each.token_ids]), "learned": False, "side": True} for each in requests]
        for requests in side
    ]
    for row, number in enumerate(trajectories.numbers.tolist()):
        if has_prompts:
            prompt = sequences.prompts[row][sequences.prompt_mask[row]].tolist()
            by_trajectory[number].append({"text": decode(prompt), "learned": False})
        attention = sequences.response_attention[row]
        tokens = sequences.responses[row][attention].tolist()
        mask = sequences.response_mask[row][attention].tolist()
        by_trajectory[number] += _split(tokens, mask, decode)
    return by_trajectory


def select_rollouts(lines: Sequence[Line]) -> list[Line]:
    """Select the best, the worst and an evenly spaced sample of a large step, in order. "kept" is the reason.

    A response whose reward failed is neither best nor worst, but can be in the sample.
    """
    if len(lines) <= MAX_ROLLOUTS:
        return list(lines)
    scored = [row for row, line in enumerate(lines) if math.isfinite(line["reward"])]
    by_reward = sorted(scored, key=lambda row: lines[row]["reward"], reverse=True)
    reasons = dict.fromkeys(by_reward[-NUM_EXTREMES:], "worst") | dict.fromkeys(by_reward[:NUM_EXTREMES], "best")
    rest = [row for row in range(len(lines)) if row not in reasons]
    size = MAX_ROLLOUTS - len(reasons)
    reasons |= dict.fromkeys((rest[i * len(rest) // size] for i in range(size)), "sample")
    return [{**lines[row], "kept": reasons[row]} for row in sorted(reasons)]


def _split(tokens: list[int], mask: list[bool], decode: Callable[[list[int]], str]) -> Iterator[Line]:
    for learned, segment in groupby(zip(tokens, mask, strict=True), key=lambda pair: pair[1]):
        yield {"text": decode([token for token, _ in segment]), "learned": learned}
