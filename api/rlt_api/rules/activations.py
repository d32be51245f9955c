"""Memory of a forward and backward pass of one device, from the dimensions of the model.

The bytes per token and layer are what transformers' Llama and Qwen3 save for the backward pass: a fit over 8
shapes of the saved tensors of two and four bytes, with and without packing, is exact for these coefficients. trainer's
tests/test_policy_memory_estimate.py compares the sum with the tensors of real updates.
"""

from __future__ import annotations

from rlt_api.rules.model_shape import Shape

CHUNK_LOGITS = {False: 2**25, True: 2**27}
"""Logits in memory at a time on a CPU and on a GPU: CHUNK_ELEMENTS of rlt_trainer/policy/log_probs.py."""
CHUNK_COPIES = 3
"""Float32 tensors as large as a chunk in its backward pass: scores, probabilities and the product of both."""


def layer_bytes(shape: Shape, itemsize: int, *, packed: bool, liger: bool = False) -> int:
    """Return the bytes that one layer saves for each token. itemsize: bytes of model.dtype.

    The norms save their input in float32, the feed-forward layer four tensors, attention its query, key, value and
    output (packed: in two layouts). Normalized queries and keys are saved in float32 too. liger: a lower bound, because
    Liger's norms save their input in model.dtype, and its feed-forward layer three tensors.
    """
    norm = 4 + itemsize if shape.normed and not liger else 0
    hidden = ((0 if liger else 8) + 4 * itemsize) * shape.hidden
    feed_forward = (3 if liger else 4) * itemsize * shape.intermediate
    queries = ((3 if packed else 2) * itemsize + norm) * shape.queries
    return hidden + feed_forward + queries + (2 * itemsize + norm) * shape.keys


def activation_bytes(
    shape: Shape, tokens: int, itemsize: int, *, packed: bool, checkpointing: bool, liger: bool = False
) -> int:
    """Return the bytes that the layers save for `tokens` tokens.

    With checkpointing: the input of each layer, and everything of the one that is computed again.
    """
    layer = layer_bytes(shape, itemsize, packed=packed, liger=liger)
    if checkpointing:
        return tokens * (shape.layers * itemsize * shape.hidden + layer)
    return tokens * shape.layers * layer


def output_bytes(shape: Shape, tokens: int, itemsize: int, *, on_gpu: bool) -> int:
    """Return the bytes of gathered embeddings, and of logits and weight gradient of the output layer.

    FSDP2 keeps the root's weights gathered for the whole pass.
    """
    weights = shape.vocabulary * shape.hidden
    gathered = itemsize * weights * (1 if shape.tied else 2)
    logits = CHUNK_COPIES * 4 * min(tokens * shape.vocabulary, CHUNK_LOGITS[on_gpu])
    return gathered + (4 + itemsize) * weights + logits
