"""Pairs of a chosen and a rejected response to one prompt. A pair stays together in shares and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from rlt_trainer.batches.sequences import Rows, Sequences


@dataclass(frozen=True)
class Pairs(Rows):
    """B pairs with the reference's log-probabilities. Both responses are padded to the same width."""

    chosen: Sequences
    rejected: Sequences
    ref_chosen: Tensor
    """[B], float32: sum over the chosen response under the reference."""
    ref_rejected: Tensor
    """[B], float32"""

    @classmethod
    def split(cls, sequences: Sequences, ref: Tensor) -> Self:
        """Split 2B rows, first all chosen and then all rejected responses. ref: [2B]."""
        half = len(sequences) // 2
        return cls(sequences.rows(slice(half)), sequences.rows(slice(half, None)), ref[:half], ref[half:])

    def __len__(self) -> int:
        return len(self.chosen)

    def clear(self, rows: Tensor) -> Self:
        """Leave the pairs [B], bool, without tokens to train on."""
        return replace(self, chosen=self.chosen.clear(rows), rejected=self.rejected.clear(rows))

    def token_counts(self, *, padded: bool = False) -> list[int]:
        """Count the tokens of each pair: both responses, each with the prompt."""
        both = (each.token_counts(padded=padded) for each in (self.chosen, self.rejected))
        return [sum(counts) for counts in zip(*both, strict=True)]

    def sequences(self) -> Sequences:
        """Return all chosen and then all rejected responses: 2B rows."""
        return self.chosen.append(self.rejected)
