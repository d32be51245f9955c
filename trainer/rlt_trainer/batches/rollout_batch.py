"""Scored responses: the output of generation and the input of build_experience."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlt_trainer.batches.ragged import pad_rows
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.scores import Scores
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.batches.trajectories import Trajectories
from rlt_trainer.data.prompt import Prompt


@dataclass(frozen=True)
class RolloutBatch:
    """B scored responses. Responses to the same prompt are adjacent.

    The response of an agent's episode can have several sequences. Each has its own prompt.

    The terms are verl's. The *score* of a response is the weighted sum of its reward functions (token_level_scores,
    metric critic/score). Its *reward* is the score plus `penalties` and the KL term of algorithm.klInReward
    (token_level_rewards, metric critic/rewards): TrainingBatch.rewards.
    """

    prompts: list[Prompt]
    """[B]: the prompt of each response."""
    responses: list[Response]
    """[B]"""
    texts: list[str]
    """[B]: the responses without special tokens."""
    scores: Scores
    """Scores of B responses."""
    penalties: Tensor
    """[B]: added to the scores of overlong responses. 0 without algorithm.overlongBuffer."""
    baselines: Tensor | None = None
    """[B]: score plus penalty of the greedy response to the same prompt, for ReMax. NaN if its reward failed."""
    consumed: int = 0
    """Number of prompts taken from the data set up to this batch."""
    num_gen_batches: int = 1
    """Number of generations in this batch: can be greater than 1 with algorithm.filterGroups."""
    staleness: Tensor | None = None
    """[B]: optimizer steps between the weights that began the response and this step's weights. NaN for an episode
    without a request. None without rollout.staleness."""
    sandboxes: Sequence[Mapping[str, Any] | None] = ()
    """[B]: of the conversations' sandboxes, Sandbox.describe. Empty without them."""

    @property
    def failed(self) -> Tensor:
        """[B], bool: the reward of the response or of its baseline failed. The response is left out of the update."""
        failed = self.scores.failed
        return failed if self.baselines is None else failed | self.baselines.isnan()

    @property
    def trajectories(self) -> Trajectories:
        """The sequences of each response."""
        return Trajectories.of([len(response.sequences) for response in self.responses])

    def pad(self, pad_token_id: int, *, has_images: bool = False) -> tuple[Sequences, Tensor]:
        """Return the S sequences as tensors, and the engine's log-probabilities [S, T], 0 at padding.

        has_images: prompts of the run can have images (data.imageKey).
        """
        pairs = [
            (prompt, prompt.token_ids if each.prompt is None else each.prompt, each)
            for prompt, response in zip(self.prompts, self.responses, strict=True)
            for each in response.sequences
        ]
        routes = [each.routes for *_, each in pairs]
        sequences = Sequences.pad(
            [token_ids for _, token_ids, _ in pairs],
            [each.token_ids for *_, each in pairs],
            pad_token_id=pad_token_id,
            chosen=[each.chosen for *_, each in pairs],
            images=[prompt.images for prompt, *_ in pairs] if has_images else None,
        )
        if any(each is not None for each in routes):
            sequences = sequences.with_routes(routes)
        log_probs = [each.log_probs for *_, each in pairs]
        return sequences, pad_rows(log_probs, np.float32, width=sequences.responses.shape[1])


def compute_group_numbers(responses: int, n: int) -> Tensor:
    """Return the group number of each response: [B], `n` responses to each prompt."""
    return torch.arange(responses) // n
