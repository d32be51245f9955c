"""Rules that score a response between 0 and 1."""

from rlt_trainer.rewards.scorer import RULES, Scorer

__all__ = ["RULES", "Scorer"]
