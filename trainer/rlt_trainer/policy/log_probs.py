"""Log-probabilities of responses under a causal language model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlt_trainer.sequences import Sequences


def response_log_probs(model: nn.Module, sequences: Sequences, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token, and entropy of its distribution (without gradient): [B, T] in float32.

    At the sampling temperature, so that they compare with the rollout's own. Values at padding mean nothing.
    """
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    tokens = torch.cat([sequences.prompts, sequences.responses], dim=-1)
    width = sequences.responses.shape[-1]
    logits = model(
        input_ids=tokens,
        attention_mask=mask.long(),
        position_ids=position_ids(mask),
        logits_to_keep=width + 1,
        use_cache=False,
    ).logits[:, :-1]
    distribution = torch.log_softmax(logits.float() / temperature, dim=-1)
    with torch.no_grad():
        entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution.gather(-1, sequences.responses[..., None]).squeeze(-1), entropy


def position_ids(mask: Tensor) -> Tensor:
    """Positions [B, L] that count from 0 at the first token that is no padding, for `mask` [B, L]."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)
