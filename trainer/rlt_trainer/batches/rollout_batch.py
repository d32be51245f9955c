"""Scored responses: what generation hands to the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rewards.scorer import Scores
from rlt_trainer.rollout.engine import Response


@dataclass(frozen=True)
class RolloutBatch:
    """Scored responses, B of them; those to one prompt lie next to one another."""

    prompts: list[Prompt]
    """[B]: of each response."""
    responses: list[Response]
    """[B]"""
    texts: list[str]
    """[B]: the responses without special tokens."""
    scores: Scores
    """[B]"""
    penalties: Tensor
    """[B]: what is added to the scores of overlong responses, 0 without algorithm.overlongBuffer."""
    baselines: Tensor | None = None
    """[B]: the score of the greedy response to the same prompt, for ReMax. NaN where its reward failed."""
    consumed: int = 0
    """Prompts that were taken from the data set until here."""
    batches: int = 1
    """Generations that it took: more than one with algorithm.filterGroups."""

    @property
    def failed(self) -> Tensor:
        """[B], bool: a reward failed, of the response or of what it is compared with. Nothing is learned from it."""
        failed = self.scores.failed
        return failed if self.baselines is None else failed | self.baselines.isnan()

    def rows(self, rows: Tensor) -> RolloutBatch:
        """Some of them."""
        places = rows.tolist()
        return RolloutBatch(
            [self.prompts[i] for i in places],
            [self.responses[i] for i in places],
            [self.texts[i] for i in places],
            self.scores.rows(rows),
            self.penalties[rows],
            None if self.baselines is None else self.baselines[rows],
            self.consumed,
            self.batches,
        )

    @staticmethod
    def joined(parts: Sequence[RolloutBatch]) -> RolloutBatch:
        """One after the other."""
        baselines = [part.baselines for part in parts if part.baselines is not None]
        return RolloutBatch(
            [prompt for part in parts for prompt in part.prompts],
            [response for part in parts for response in part.responses],
            [text for part in parts for text in part.texts],
            Scores.concatenate([part.scores for part in parts]),
            torch.cat([part.penalties for part in parts]),
            torch.cat(baselines) if baselines else None,
            parts[-1].consumed,
            sum(part.batches for part in parts),
        )

    def pad(self, pad_token_id: int) -> tuple[Sequences, Tensor]:
        """Prompts and responses in tensors, and the engine's log-probabilities [B, T], 0 at padding."""
        sequences = Sequences.pad(
            [prompt.token_ids for prompt in self.prompts],
            [response.token_ids for response in self.responses],
            pad_token_id=pad_token_id,
            chosen=[response.chosen for response in self.responses],
        )
        log_probs = torch.zeros(sequences.responses.shape)
        drawn = torch.tensor([value for response in self.responses for value in response.log_probs])
        log_probs[sequences.response_attention] = drawn
        return sequences, log_probs
