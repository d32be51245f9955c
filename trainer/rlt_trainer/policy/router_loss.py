"""The auxiliary load-balancing loss for a mixture of experts (Switch Transformer, arXiv 2101.03961)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils.output_capturing import OutputRecorder

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.model_inputs import find_token_places


class RouterLoss:
    """Records the logits of a model's routers within `record`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._top_k = int(model.config.get_text_config().num_experts_per_tok)
        self._logits: list[Tensor] = []
        self._is_recording = False
        recorder = find_router(model)
        for module in model.modules():
            if isinstance(module, recorder.target_class):
                module.register_forward_hook(lambda module, inputs, output: self._add(output[recorder.index]))

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record a forward pass."""
        self._logits.clear()
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False  # a layer that is computed again in the backward pass is not recorded again

    def compute(self, sequences: Sequences, *, packed: bool) -> Tensor:
        """Return the sum over the trained sequences of their loss in the recorded pass, the mean over the layers."""
        rows = number_tokens(sequences, packed=packed)
        losses = [balance_loss(logits, rows, len(sequences), self._top_k) for logits in self._logits]
        self._logits.clear()
        return torch.stack(losses).mean()

    def _add(self, logits: Tensor) -> None:
        if self._is_recording:
            self._logits.append(logits.flatten(0, -2))


def find_router(model: PreTrainedModel) -> OutputRecorder:
    """Return the class of the model's routers, and the position of the logits in their result."""
    recorded: list[dict[str, Any]] = [getattr(each, "_can_record_outputs", None) or {} for each in model.modules()]
    found: OutputRecorder = next(each["router_logits"] for each in recorded if "router_logits" in each)
    return found


def balance_loss(logits: Tensor, rows: Tensor, sequences: int, top_k: int) -> Tensor:
    """Return the sum over the sequences of E sum_i f_i P_i, for the logits [N, E] of one layer.

    rows [N]: the number of each token's sequence, or -1 for tokens to leave out. f_i: tokens of the sequence that
    are routed to expert i, divided by its tokens. P_i: the mean probability of expert i in the sequence. The formula is
    from transformers' load_balancing_loss_func. That function takes all tokens and layers of a forward pass together:
    the loss would depend on the sizes of micro-batches and on the number of ranks.
    """
    probabilities = logits.float().softmax(-1)
    chosen = torch.zeros_like(probabilities).scatter_(-1, probabilities.topk(top_k, dim=-1).indices, 1.0)
    members = (rows[:, None] == torch.arange(sequences, device=rows.device)).to(probabilities.dtype)  # [N, sequences]
    tokens = members.sum(0).clamp(min=1)[:, None]
    return logits.shape[1] * ((members.T @ chosen / tokens) * (members.T @ probabilities / tokens)).sum()


def number_tokens(sequences: Sequences, *, packed: bool) -> Tensor:
    """Return the number of each token's sequence in a forward pass [N]; -1 for padding and for sequences that are
    not trained on."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    numbers = torch.arange(len(mask), device=mask.device).where(sequences.response_mask.any(-1), -1)
    rows = numbers[:, None].expand_as(mask).where(mask, -1)
    return rows.flatten().index_select(0, find_token_places(sequences)) if packed else rows.flatten()
