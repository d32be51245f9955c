"""The advantage and the mismatch of each token in a step's best and worst responses, for the run page. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest

import torch
from torch import Tensor

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.trajectories import Trajectories
from rlt_trainer.telemetry.rollout_log import MAX_ROLLOUTS, NUM_EXTREMES, Line

MAX_TOKENS = 16_384
"""Maximum number of tokens of a step whose values are recorded: about 500 kB."""


def add_token_values(
    lines: Sequence[Line],
    responses: Sequence[Response],
    trajectories: Trajectories,
    *,
    advantages: Tensor,
    mask: Tensor,
    log_probs: Tensor | None,
    decode: Callable[[int], str],
) -> list[Line]:
    """Add "by_token" to the best and the worst lines, until MAX_TOKENS: texts, advantages and mismatches of the tokens.

    `advantages` [S, T], `log_probs` [S, T] of the trainer (None without them), and `mask` [S, T], the tokens that the
    update trains on. An advantage is None without the mask. A mismatch is the trainer's log-probability minus the
    engine's. It is None for tokens that the policy did not sample.
    """
    values: dict[int, Line] = {}
    left = MAX_TOKENS
    for row in order_rows([line["reward"] for line in lines]):
        if left <= 0:
            break
        parts = zip(trajectories.numbers.eq(row).nonzero().flatten().tolist(), responses[row].sequences, strict=True)
        tokens = list(
            chain.from_iterable(_list_values(each, part, advantages, mask, log_probs) for part, each in parts)
        )
        tokens = tokens[:left]
        left -= len(tokens)
        values[row] = {
            "texts": [decode(token) for token, _, _ in tokens],
            "advantages": [advantage for _, advantage, _ in tokens],
            **({"mismatches": [mismatch for _, _, mismatch in tokens]} if log_probs is not None else {}),
        }
    return [{**line, "by_token": values[row]} if row in values else line for row, line in enumerate(lines)]


def order_rows(rewards: Sequence[float]) -> list[int]:
    """The rows of the best and the worst rewards in turn, as far as select_rollouts keeps them for their rewards."""
    size = len(rewards) if len(rewards) <= MAX_ROLLOUTS else NUM_EXTREMES
    scored = [row for row, reward in enumerate(rewards) if math.isfinite(reward)]
    ordered = sorted(scored, key=lambda row: rewards[row], reverse=True)
    pairs = zip_longest(ordered[:size], ordered[::-1][:size])
    return list(dict.fromkeys(row for row in chain.from_iterable(pairs) if row is not None))


def decode_token(token: int, decode: Callable[[list[int]], str]) -> str:
    """The text of a token within a text. Part of a character is U+FFFD.

    A decoder of SentencePiece drops the space before the first token of a text, so the token is decoded twice.
    """
    return decode([token, token])[len(decode([token])) :]


def _list_values(
    response: Response, part: int, advantages: Tensor, mask: Tensor, log_probs: Tensor | None
) -> Iterator[tuple[int, float | None, float | None]]:
    """Token, advantage and mismatch of each token in a sequence, the row `part` of the tensors."""
    length = len(response.token_ids)
    learned = mask[part, :length]
    sampled = torch.tensor(list(response.chosen), dtype=torch.bool)
    given = torch.where(learned, advantages[part, :length], torch.nan).tolist()
    if log_probs is None:
        differences: list[float] = [math.nan] * length
    else:
        engine = torch.tensor(list(response.log_probs))
        differences = torch.where(sampled, log_probs[part, :length] - engine, torch.nan).tolist()
    for token, advantage, difference in zip(response.token_ids, given, differences, strict=True):
        yield token, _round(advantage), _round(difference)


def _round(value: float) -> float | None:
    """Four significant digits. None if it is not finite."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
