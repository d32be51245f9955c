"""Liger's Triton kernels for norms, rotary embeddings and feed-forward layers (model.useLiger)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlt_api.model_families import LIGER_FAMILIES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel  # takes half a second, and the driver needs no model

PACKAGE = "liger_kernel"


def validate_liger(config: PreTrainedConfig) -> None:
    """Raise ValueError if Liger has no kernels for this model, or if they are not installed."""
    if config.model_type not in LIGER_FAMILIES:
        raise ValueError(
            f"model.useLiger: true is not supported for models of type {config.model_type}, only for "
            f"{', '.join(LIGER_FAMILIES)}. Set it to false."
        )
    if find_spec(PACKAGE) is None:
        raise ValueError(
            "model.useLiger: true requires the package liger-kernel, which the image does not have. Use the trainer's "
            "image for CUDA, add liger-kernel to yours, or set useLiger to false."
        )


def apply_liger(model: PreTrainedModel) -> None:
    """Replace the norms, rotary embeddings and feed-forward layers of `model`, in place.

    Its cross entropy stays off: the trainer computes log-probabilities itself, in chunks of the logits (as verl does:
    verl/workers/engine/fsdp/transformer_impl.py). Raises ValueError as `validate_liger`.
    """
    validate_liger(model.config)
    from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, cross_entropy=False, fused_linear_cross_entropy=False)
