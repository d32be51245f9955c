"""The rollout correction of responses that were sampled with topP or topK: what rlt_api rejects.

The engine's log-probabilities are those among the kept tokens, and the trainer's those among all, on the same logits.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs
from rlt_trainer.algorithms.rollout_correction import correct_rollout
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.transformers_engine import compute_log_distribution, sample

RESPONSES = 256
TOKENS = 16
VOCABULARY = 64
MASK = torch.ones(RESPONSES, TOKENS, dtype=torch.bool)


def generate(**truncation: Any) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of trainer and engine of sampled tokens: [B, T] each."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(RESPONSES * TOKENS, VOCABULARY, generator=generator)
    sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, "max_tokens": TOKENS, "stop_token_ids": (), **truncation})
    engine = compute_log_distribution(logits, sampling)
    tokens = sample(engine, [generator] * len(engine))[:, None]
    both = (each.gather(-1, tokens).view(RESPONSES, TOKENS) for each in (logits.log_softmax(-1), engine))
    trainer, engine = both
    return trainer, engine


@pytest.mark.parametrize("top_p", [0.5, 0.95])
def test_weights_of_tokens_are_the_kept_mass(top_p: float) -> None:
    weights = correct_rollout(*generate(top_p=top_p), MASK).weights
    assert weights is not None
    assert top_p <= weights.min()
    assert weights.max() < 1
    removed = correct_rollout(*generate(top_p=top_p), MASK, lower_threshold=top_p + 0.1).weights
    assert removed is not None
    assert not removed.any()


@pytest.mark.parametrize(
    ("truncation", "bound"), [({"top_p": 0.5}, 1e-4), ({"top_k": 5}, 1e-6), ({"top_p": 0.95}, 0.5)]
)
def test_weights_of_responses_approach_zero(truncation: dict[str, Any], bound: float) -> None:
    weights = correct_rollout(*generate(**truncation), MASK, level="sequence").weights
    assert weights is not None
    assert weights.max() < bound


@pytest.mark.parametrize("truncation", [{"top_p": 0.5}, {"top_p": 0.95}, {"top_k": 5}])
def test_a_rejection_removes_every_token(truncation: dict[str, Any]) -> None:
    for rejection in ("token_k1", "seq_mean_k1", "seq_sum_k1"):
        options: dict[str, Any] = {"rejection": rejection, "rejection_threshold": 1.01}
        assert not correct_rollout(*generate(**truncation), MASK, level=None, **options).mask.any()


@pytest.mark.parametrize(("top_p", "share"), [(0.5, 0.0), (0.9, 1.0)])
def test_below_the_clip_negative_advantages_have_no_gradient_in_bypass_mode(top_p: float, share: float) -> None:
    trainer, engine = generate(top_p=top_p)
    for advantage, expected in ((-1.0, share), (1.0, 1.0)):
        log_probs = trainer.clone().requires_grad_()
        inputs = LossInputs(log_probs, engine, torch.full_like(trainer, advantage), MASK)
        POLICY_LOSSES["vanilla"](inputs).loss.sum().backward()  # type: ignore[no-untyped-call]
        assert log_probs.grad is not None
        assert (log_probs.grad != 0).float().mean() == expected
