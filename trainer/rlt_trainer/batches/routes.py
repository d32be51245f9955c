"""Routes: the experts of each token in each layer of a mixture of experts, for algorithm.routerReplay. Pure.

A route is the number of an expert plus 1. 0, the value of padding, leaves the choice to the router.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Routes = NDArray[Any]
"""[N, L, k], uint8 or int16: the routes of N tokens, to k experts in each of L decoder layers. The values of a dense
layer have no meaning."""


def encode_routes(numbers: Tensor, experts: int) -> Tensor:
    """Return the routes to the experts with these numbers, below `experts`, in the same shape: uint8 or int16."""
    return (numbers + 1).to(torch.uint8 if experts < 256 else torch.int16)


def pad_routes(rows: Sequence[Routes | None], prompts: Sequence[int], *, prompt_width: int, width: int) -> Tensor:
    """Return the routes of the first tokens of B prompts with their responses as a tensor [B, P + T, L, k].

    Prompts of `prompts` tokens end at `prompt_width`, and responses are at most `width` long. Other tokens have 0.
    At least one row is not None.
    """
    first = next(row for row in rows if row is not None)
    padded = np.zeros((len(rows), prompt_width + width, *first.shape[1:]), dtype=first.dtype)
    for target, row, prompt in zip(padded, rows, prompts, strict=True):
        if row is not None:
            target[prompt_width - prompt :][: len(row)] = row
    return torch.from_numpy(padded)


def flatten_routes(padded: Tensor, prompts: Sequence[int], responses: Sequence[int], *, prompt_width: int) -> Routes:
    """Return the routes of all tokens in padded rows [B, P + T, L, k], one row after the other: [N, L, k]."""
    ends = zip(padded.numpy(), prompts, responses, strict=True)
    return np.concatenate([row[prompt_width - prompt : prompt_width + response] for row, prompt, response in ends])
