"""Log-probabilities in chunks need a small part of the full logits' memory, at a vocabulary of 150,000."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from peak_bytes import PeakBytes
from torch import Tensor

from rlt_trainer.policy.log_probs import token_log_probs
from rlt_trainer.policy.logit_chunk import LogitScale

MAX_PEAK_RATIO = 0.25
VOCABULARY = 150_000
WIDTH = 16
LogProbs = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps hidden states [N, H], weights [V, H] and targets [N] to log-probabilities and entropies [N]."""


def in_chunks(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The trainer's function."""
    return token_log_probs(hidden, weight, None, targets, LogitScale())


def from_full_logits(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch's operations, with autograd."""
    log_p = torch.nn.functional.linear(hidden, weight).float().log_softmax(-1)
    return log_p.gather(-1, targets[:, None]).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


def measure_peak(compute: LogProbs, tokens: int, device: str) -> int:
    """The peak bytes of tensors in a forward and backward pass."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    hidden = torch.randn(tokens, WIDTH, device=device, dtype=dtype, requires_grad=True)
    weight = (torch.randn(VOCABULARY, WIDTH, device=device, dtype=dtype) / WIDTH**0.5).requires_grad_()
    targets = torch.randint(VOCABULARY, (tokens,), device=device)
    counted = PeakBytes()
    with counted:
        log_probs, entropy = compute(hidden, weight, targets)
        (log_probs.sum() + 0.01 * entropy.sum()).backward()  # type: ignore[no-untyped-call]
    return counted.peak


@pytest.mark.slow
@pytest.mark.long
def test_the_peak_is_a_quarter_of_the_full_logits_peak(device: str) -> None:
    """Bytes of tensors do not depend on the load of the machine."""
    tokens = 8192 if device == "cuda" else 1500
    in_one = measure_peak(from_full_logits, tokens, device)
    assert measure_peak(in_chunks, tokens, device) <= MAX_PEAK_RATIO * in_one
