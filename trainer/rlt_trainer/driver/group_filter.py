"""DAPO's dynamic sampling (algorithm.filterGroups, arXiv 2503.14476): groups whose responses differ in a metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from rlt_api.blocks.algorithm import FilterGroups
from rlt_trainer.algorithms.shaping import filter_groups
from rlt_trainer.batches.rollout_batch import RolloutBatch, compute_group_numbers
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import Terminated, TrainingError

MAX_FRUITLESS = 20
"""Number of generations in a row that may keep no group, without maxNumGenBatches. The field's description has it."""
GENERATIONS = "generations"
REASON = "reason."
"""Names of the counts in a checkpoint."""


class GroupFilter:
    """Selects groups, and counts the generations of a batch."""

    def __init__(self, filtering: FilterGroups, *, size: int, n: int, termination: Termination) -> None:
        """`size`: prompts of a batch; `n`: responses to each."""
        self._filtering = filtering
        self._size = size
        self._n = n
        self._termination = termination
        self._fruitless = 0
        self.generations = 0
        """Generations of the batch in progress."""
        self.reasons: Counter[str] = Counter()
        """Failed responses of these generations by reason, also those that are not kept: as Scores.reasons."""

    def begin_batch(self) -> None:
        """Begin the batch of the next step."""
        self.generations = 0
        self.reasons.clear()

    def pack(self) -> dict[str, Tensor]:
        """Return the counts as tensors, for the checkpoint of a batch that no step has trained on."""
        reasons = {f"{REASON}{name}": torch.tensor(count) for name, count in self.reasons.items()}
        return {GENERATIONS: torch.tensor(self.generations), **reasons}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors of `pack`."""
        self.generations = int(tensors.get(GENERATIONS, 0))
        self.reasons = Counter(
            {name.removeprefix(REASON): int(count) for name, count in tensors.items() if name.startswith(REASON)}
        )

    def select(self, generation: RolloutBatch) -> list[bool]:
        """Return which groups of a generation are kept."""
        metric = compute_filter_metric(generation, self._filtering.metric)
        kept = filter_groups(metric, compute_group_numbers(len(metric), self._n))[:: self._n].tolist()
        self.generations += 1
        self.reasons.update(generation.scores.reasons)
        self._fruitless = 0 if any(kept) else self._fruitless + 1
        return kept

    def validate_progress(self, step: int, ready: int) -> None:
        """Report that the batch of `step` has `ready` groups and requires more.

        Raises TrainingError if maxNumGenBatches generations are not enough, and without it if MAX_FRUITLESS in a row
        keep no group. After SIGTERM, raises Terminated instead of waiting for a further generation.
        """
        progress = (
            f"{ready} of {self._size} prompts have responses that differ in {self._filtering.metric} "
            f"(algorithm.filterGroups) after {self.generations} generations"
        )
        limit = self._filtering.max_num_gen_batches
        if self._fruitless >= MAX_FRUITLESS and limit == 0:
            raise TrainingError(
                f"Only {progress}, and the last {self._fruitless} added none. Use other prompts or another reward, "
                "increase responsesPerPrompt, or set maxNumGenBatches to continue for longer."
            )
        if 0 < limit <= self.generations:
            raise TrainingError(
                f"Only {progress}: the prompts are too easy or too hard. Increase maxNumGenBatches or "
                "responsesPerPrompt, or use other prompts."
            )
        if self._termination.requested:
            raise Terminated(f"Training was terminated (SIGTERM) after {self.generations} generations of step {step}.")
        print(f"[training] step {step}: {progress}", flush=True)


def compute_filter_metric(batch: RolloutBatch, metric: str) -> Tensor:
    """Return the metric that DAPO's filter compares within a group: [B], NaN if a reward failed.

    acc is the first reward, score the weighted sum of all rewards, seq_reward the score plus the overlong penalty.
    """
    scores = batch.scores
    match metric:
        case "acc":
            return torch.where(scores.failed, torch.nan, next(iter(scores.by_reward.values())))
        case "score":
            return scores.total
        case _:
            return scores.total + batch.penalties
