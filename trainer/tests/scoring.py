"""Scores of a whole batch, as the driver combines them."""

from __future__ import annotations

from collections.abc import Sequence

from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rewards.outcome import Outcome
from rlt_trainer.rewards.scorer import Scorer


def score_batch(
    scorer: Scorer, texts: Sequence[str], prompts: Sequence[Prompt], *elsewhere: dict[str, Outcome]
) -> Scores:
    """Score a batch. `elsewhere`: for each response, the outcomes of reward models and of an environment."""
    batch = scorer.open_batch()
    scoring = [batch.start(text, prompt) for text, prompt in zip(texts, prompts, strict=True)]
    others: Sequence[dict[str, Outcome]] = elsewhere or [{} for _ in texts]
    return scorer.combine([{**each.result(), **other} for each, other in zip(scoring, others, strict=True)])
