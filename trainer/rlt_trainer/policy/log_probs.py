"""Log-probabilities of responses under a causal language model."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.response_tokens import per_response_token
from rlt_trainer.policy.token_log_probs import LogitScale, token_log_probs


def response_log_probs(
    model: PreTrainedModel,
    sequences: Sequences,
    *,
    temperature: float,
    packed: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token, and entropy of its distribution: [B, T] in float32, 0 at padding.

    At the sampling temperature, so that they compare with the rollout's own. Both have a gradient.
    packed: without padding, for a model with packed_attention. group: the ranks that share each sequence.
    """
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    logits = LogitScale.of(model.config, temperature)

    def head(hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return token_log_probs(hidden, output.weight, getattr(output, "bias", None), targets, logits)

    log_probs, entropy = per_response_token(model, sequences, head, packed=packed, group=group)
    return log_probs, entropy
