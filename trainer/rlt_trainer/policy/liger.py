"""Liger's Triton kernels for norms, rotary embeddings and feed-forward layers (model.useLiger)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rlt_api.rules.model_families import LIGER_FAMILIES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel  # takes half a second, and the driver needs no model

PACKAGE = "liger_kernel"
VERSIONS = ("0.8.5",)
"""The versions of liger-kernel whose private functions are known: the version in the image for CUDA."""
_APPLY = "_apply_liger_kernel_to_instance"


def validate_liger(config: PreTrainedConfig) -> None:
    """Raise ValueError if Liger has no kernels for this model, or if none of VERSIONS is installed."""
    if config.model_type not in LIGER_FAMILIES:
        raise ValueError(
            f"model.useLiger: true is not supported for models of type {config.model_type}, only for "
            f"{', '.join(LIGER_FAMILIES)}. Set it to false."
        )
    if find_spec(PACKAGE) is None:
        raise ValueError(
            "model.useLiger: true requires the package liger-kernel, which the image does not have. Use the trainer's "
            f"image for CUDA, add liger-kernel=={VERSIONS[-1]} to yours, or set useLiger to false."
        )
    if (found := version("liger-kernel")) not in VERSIONS:
        raise ValueError(
            f"model.useLiger: true is supported with liger-kernel {' and '.join(VERSIONS)}, and the image has {found}. "
            f"Install liger-kernel=={VERSIONS[-1]}, or set useLiger to false."
        )


def apply_liger(model: PreTrainedModel) -> None:
    """Replace the norms, rotary embeddings and feed-forward layers of `model`, in place.

    Its cross entropy stays off: the trainer computes log-probabilities itself, in chunks of the logits (as verl does:
    verl/workers/engine/fsdp/transformer_impl.py). Raises ValueError as `validate_liger`.
    """
    validate_liger(model.config)
    _find_apply()(model=model, cross_entropy=False, fused_linear_cross_entropy=False)


def _find_apply() -> Callable[..., Any]:
    """Return Liger's private function that replaces the layers of one model. Raises ValueError if it is missing."""
    apply: Callable[..., Any] | None = getattr(import_module(f"{PACKAGE}.transformers.monkey_patch"), _APPLY, None)
    if apply is None:
        raise ValueError(
            f"model.useLiger: true: liger-kernel {version('liger-kernel')} does not have {_APPLY}. Install "
            f"liger-kernel=={VERSIONS[-1]} again, or set useLiger to false."
        )
    return apply
