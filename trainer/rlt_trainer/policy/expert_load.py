"""How balanced a mixture of experts is during an update, as metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from rlt_trainer.batches.sequences import Sequences

EXPERTS = "experts"
"""The name of transformers' modules of stacked experts. Their forward gets hidden states [N, H] and the numbers of
each token's experts [N, k]."""


class ExpertLoad:
    """Counts the tokens of each expert in a model's forward passes within `count`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._counts: dict[str, Tensor] = {}
        self._tokens: Tensor | None = None
        for name, module in model.named_modules():
            if name.rpartition(".")[2] == EXPERTS and hasattr(module, "num_experts"):
                module.register_forward_pre_hook(partial(self._count, name))

    @contextmanager
    def count(self, tokens: Tensor) -> Iterator[None]:
        """Count in a forward pass. tokens [N], bool: those to count."""
        self._tokens = tokens
        try:
            yield
        finally:
            self._tokens = None  # a layer that is computed again in the backward pass does not count again

    def reduce(self) -> dict[str, Tensor]:
        """Return the number of tokens of each expert [E] in the passes since the last call, over all ranks, by the name
        of the experts' module. Collective. Empty without passes."""
        names = list(self._counts)
        if not names:
            return {}
        counts = torch.stack(list(self._counts.values()))
        self._counts.clear()
        dist.all_reduce(counts)
        return dict(zip(names, counts, strict=True))

    def _count(self, name: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._tokens is None or len(arguments) < 2:  # Llama 4 passes no numbers
            return
        chosen = arguments[1].reshape(len(self._tokens), -1)
        weights = self._tokens.float()[:, None].expand_as(chosen)
        if name not in self._counts:
            self._counts[name] = torch.zeros(int(module.num_experts), device=chosen.device)  # type: ignore[arg-type]
        self._counts[name].scatter_add_(0, chosen.flatten(), weights.flatten())


def describe_balance(counts: Tensor) -> dict[str, float]:
    """Return the metrics for the number of tokens of each expert [layers, E]."""
    share = counts.double() / counts.double().sum(1, keepdim=True).clamp(min=1)
    entropy = torch.special.entr(share).sum(1) / math.log(counts.shape[1])
    return {
        "actor/expert_load_max": float((share.max(1).values * counts.shape[1]).max()),
        "actor/expert_load_entropy": float(entropy.mean()),
    }


def find_trained_tokens(sequences: Sequences, *, packed: bool, group: dist.ProcessGroup | None) -> Tensor:
    """Return which tokens of this rank's forward pass belong to sequences that are trained on, without padding: [N]."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    if not packed:
        return (mask & sequences.response_mask.any(-1)[:, None]).flatten()
    counts = sequences.count_lengths()
    lengths = torch.tensor(counts.prompts) + torch.tensor(counts.responses)
    ends = lengths.to(mask.device, non_blocking=True)
    is_trained = sequences.response_mask.any(-1)
    tokens = is_trained.repeat_interleave(ends, output_size=int(lengths.sum()))
    if group is None:
        return tokens
    size = -(-len(tokens) // group.size())
    return functional.pad(tokens, (0, size * group.size() - len(tokens)))[group.rank() * size :][:size]
