"""One forward pass over responses: from the model's hidden states to a value for each response token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.image_processor import ImageInputs
from rlt_trainer.policy.context_parallel import gather_tokens
from rlt_trainer.policy.model_inputs import Positions, find_token_places, pack_inputs, pad_inputs, send_to
from rlt_trainer.policy.packed_attention import Packing
from rlt_trainer.policy.vision import TOKEN_INPUTS, embed_images, find_text_decoder

Head = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
"""Maps hidden states [M, H] and the tokens that follow them [M] to values [M] each, or [M, K] for K values. With `ids`,
the tokens are [M, 1 + K]: the one that follows, and the K others."""


def forward_responses(
    model: PreTrainedModel,
    sequences: Sequences,
    head: Head,
    *,
    packed: bool,
    group: dist.ProcessGroup | None,
    images: ImageInputs | None = None,
    ids: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Apply `head` to the hidden state before each response token: [B, T] each, or [B, T, K], 0 at padding.

    ids: [B, T, K], other tokens for `head`.
    group: the ranks that share each sequence. The sequences must then be packed and the same on all of these ranks.
    images: all prompts', for a vision-language model. Ranks do not share the sequences then.
    """
    assert packed or group is None
    assert images is None or group is None
    ranks, rank = (group.size(), group.rank()) if group is not None else (1, 0)
    inputs = pack_inputs(sequences, multiple=ranks) if packed else pad_inputs(sequences)
    size = inputs.tokens.shape[1] // ranks
    mine = slice(rank * size, (rank + 1) * size)
    decoder = find_decoder(model)
    tokens: dict[str, Any] = {"input_ids": inputs.tokens[:, mine]}
    positions = inputs.position_ids[:, mine]
    if images is not None:
        tokens, positions = _embed_images(decoder, sequences, images, packed=packed)
        decoder = find_text_decoder(decoder)
    hidden = decoder(
        **tokens,
        position_ids=positions,
        attention_mask=inputs.attention_mask,
        use_cache=False,
        **({"packing": Packing.of(inputs.lengths, group, inputs.tokens.device)} if packed else {}),
    ).last_hidden_state.flatten(0, 1)
    targets = inputs.targets
    if ids is not None:
        targets = torch.cat([targets[:, None], ids.flatten(0, 1).index_select(0, inputs.slots)], dim=-1)
    if group is None:
        values = head(hidden[send_to(hidden.device, inputs.before)], targets)
    else:
        values = _apply_head_over_ranks(hidden, inputs.before, targets, head, mine, group)
    shape = sequences.responses.shape
    places = (inputs.slots // shape[1], inputs.slots % shape[1])
    return tuple(each.new_zeros(*shape, *each.shape[1:]).index_put(places, each) for each in values)


def _embed_images(
    decoder: nn.Module, sequences: Sequences, images: ImageInputs, *, packed: bool
) -> tuple[dict[str, Any], Tensor]:
    """As embed_images, for all tokens of the sequences; packed: [1, N, H] and [3, 1, N]."""
    tokens = torch.cat([sequences.prompts, sequences.responses], dim=-1).long()
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    is_prompt = torch.cat([sequences.prompt_mask, torch.zeros_like(sequences.response_attention)], dim=-1)
    is_image = (tokens == images.token) & is_prompt
    inputs, positions = embed_images(decoder, tokens, mask, is_image, images)
    if packed:
        places = find_token_places(sequences)
        inputs |= {
            name: inputs[name].flatten(0, 1).index_select(0, places)[None] for name in TOKEN_INPUTS & inputs.keys()
        }
        positions = positions.flatten(1).index_select(1, places)[:, None]
    return inputs, positions


def find_decoder(model: PreTrainedModel) -> nn.Module:
    """Return the part of a model that computes hidden states. Llama 4 does not name it in base_model_prefix."""
    base = model.base_model
    return model.get_submodule("model") if base is model else base


def _apply_head_over_ranks(
    hidden: Tensor, before: Positions, targets: Tensor, head: Head, mine: slice, group: dist.ProcessGroup
) -> tuple[Tensor, ...]:
    """Apply `head` to this rank's hidden states [n, H], and gather the values of all ranks: [M] each, or [M, K]."""
    first, last = np.searchsorted(before, (mine.start, mine.stop))
    positions = send_to(hidden.device, before[first:last] - mine.start)
    values = head(hidden[positions], targets[first:last])
    places = send_to(hidden.device, before)
    by_token = (each.new_zeros(len(hidden), *each.shape[1:]).index_copy(0, positions, each) for each in values)
    return tuple(gather_tokens(each, group)[places] for each in by_token)
