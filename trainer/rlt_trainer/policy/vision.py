"""Models that see: the embeddings and positions of prompts with images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlt_trainer.data.image_processor import ImageInputs


def embed_images(
    decoder: Any, tokens: Tensor, mask: Tensor, is_image: Tensor, images: ImageInputs
) -> tuple[Tensor, Tensor]:
    """Return the embeddings [B, L, H] and the positions [3, B, L] of `tokens` [B, L], int64.

    mask: [B, L], False at padding. is_image: [B, L], bool: the tokens that stand for the parts of `images`, in order.
    An image token that the policy sampled is not one of them, and keeps its own embedding.
    If there are none, `images` is a blank image, whose part of the result is 0: all ranks must run the vision tower,
    which gathers its weights and reduces its gradients.
    """
    embeddings = decoder.get_input_embeddings()(tokens)
    features = decoder.get_image_features(images.pixels, images.grids, return_dict=True).pooler_output
    parts: Tensor = torch.cat(features).to(embeddings.dtype)
    if is_image.any():
        embeddings = embeddings.masked_scatter(is_image[..., None], parts)
    else:
        embeddings = embeddings + 0 * parts.sum()
    positions, _ = decoder.get_rope_index(
        tokens, mm_token_type_ids=is_image.int(), image_grid_thw=images.grids, attention_mask=mask.long()
    )
    return embeddings, positions
