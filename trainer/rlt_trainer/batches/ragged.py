"""Rows of different lengths: padded tensors to compute with, flat arrays to send to other processes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values: TypeAlias = "Sequence[Any] | NDArray[Any]"


def pad_rows(
    rows: Sequence[Values],
    dtype: type[Any],
    *,
    fill: int = 0,
    width: int,
    left: bool = False,
    shape: tuple[int, ...] = (),
) -> Tensor:
    """Return the rows as a tensor [B, `width`] of numpy's `dtype`, with `fill` on the right, or on the `left`.

    shape: of each value, instead of a number. The tensor is [B, `width`, *`shape`] then.
    """
    padded = np.full((len(rows), width, *shape), fill, dtype=dtype)
    for target, row in zip(padded, rows, strict=True):
        if len(row) > 0:
            target[width - len(row) if left else 0 :][: len(row)] = row
    return torch.from_numpy(padded)


def build_mask(lengths: Sequence[int], *, width: int, left: bool = False) -> Tensor:
    """Return which positions of padded rows have values: [B, `width`], bool."""
    positions = np.arange(width, 0, -1, dtype=np.int32) if left else np.arange(1, width + 1, dtype=np.int32)
    return torch.from_numpy(positions <= np.array(lengths, dtype=np.int32)[:, None])


def count_rows(mask: Tensor) -> list[int]:
    """Count the True elements in each row of a mask [B, T]."""
    counts: list[int] = np.count_nonzero(mask.numpy(), axis=1).tolist()  # ten times as fast as torch's sum
    return counts


def join_rows(rows: Sequence[Values], dtype: type[Any]) -> Tensor:
    """Return rows one after the other: [N] of numpy's `dtype`."""
    return torch.from_numpy(np.concatenate([np.empty(0, dtype), *(np.asarray(row, dtype=dtype) for row in rows)]))


def flatten_rows(padded: Tensor, lengths: Sequence[int], *, left: bool = False) -> NDArray[Any]:
    """Return the values of padded rows [B, T, ...] one after the other: [N, ...]."""
    values = padded.numpy()
    width = padded.shape[1]
    return np.concatenate(
        [row[width - length :] if left else row[:length] for row, length in zip(values, lengths, strict=True)]
    )


def split_rows(flat: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
    """Return the rows of a flat array [N, ...], as views."""
    return [flat[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]
