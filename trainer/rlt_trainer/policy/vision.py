"""Vision-language models: the embeddings and positions of prompts with images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlt_trainer.data.image_processor import ImageInputs

TEXT_DECODER = "language_model"
"""Name of the text decoder in these models."""
TOKEN_INPUTS = {"inputs_embeds", "visual_pos_masks"}
"""The inputs of the text decoder with a value for each token: [B, L, ...]."""


def find_text_decoder(decoder: nn.Module) -> nn.Module:
    """Return the part of a vision-language model that takes the result of embed_images."""
    return decoder.get_submodule(TEXT_DECODER)


def embed_images(
    decoder: Any, tokens: Tensor, mask: Tensor, is_image: Tensor, images: ImageInputs
) -> tuple[dict[str, Any], Tensor]:
    """Return the input of the text decoder, with embeddings [B, L, H], and the positions [3, B, L] of `tokens` [B, L],
    int64.

    mask: [B, L], False at padding. is_image: [B, L], bool: the tokens that stand for the parts of `images`, in order.
    An image token that the policy sampled is not one of them, and keeps its own embedding.
    If there are none, `images` is a blank image, whose part of the result is 0: all ranks must run the vision tower,
    which gathers its weights and reduces its gradients.
    """
    embeddings = decoder.get_input_embeddings()(tokens)
    features = decoder.get_image_features(images.pixels, images.grids, return_dict=True)
    parts: Tensor = torch.cat(features.pooler_output).to(embeddings.dtype)
    # Qwen3-VL adds features from the tower's inner layers to the hidden states of the decoder's first layers. One
    # layer's features are a tensor for each image; in transformers 5.17, a tensor for all images.
    deepstack = getattr(features, "deepstack_features", None) or ()
    inner: list[Tensor] = [each if isinstance(each, Tensor) else torch.cat(each) for each in deepstack]
    if is_image.any():
        inputs: dict[str, Any] = {"inputs_embeds": embeddings.masked_scatter(is_image[..., None], parts)}
        if inner:
            inputs |= {"visual_pos_masks": is_image, "deepstack_visual_embeds": inner}
    else:
        inputs = {"inputs_embeds": embeddings + 0 * sum(each.sum() for each in (parts, *inner))}
    positions, _ = decoder.get_rope_index(
        tokens, mm_token_type_ids=is_image.int(), image_grid_thw=images.grids, attention_mask=mask.long()
    )
    return inputs, positions
