"""Memory of a device that a sync of the policy's weights needs in addition to weights, while it runs.

The sender gathers one layer, copies a weight, converts it to single experts, and packs it into buckets
(rlt_trainer/policy/model.py, policy/weight_files.py, rollout/buckets.py). On the same device vLLM keeps views of the
buckets until a layer is complete, and then allocates the layer a second time
(vllm/model_executor/model_loader/reload/layerwise.py, vLLM 0.32).

trainer's tests/test_policy_memory_estimate.py compares the sum with the tensors of a real sender. The part of the
engine follows from vLLM's code, and has not been measured.
"""

from __future__ import annotations

from rlt_api.rules.model_shape import Shape

BUCKET_BYTES = 256 * 2**20
"""Maximum size of a bucket with several weights: BUCKET_BYTES of rlt_trainer/rollout/buckets.py."""


def weight_sync_bytes(
    shape: Shape,
    itemsize: int,
    *,
    shared: bool,
    tensor_parallel_size: int = 1,
    expert_parallel_size: int = 1,
    bucket: int = BUCKET_BYTES,
) -> float:
    """Return the peak bytes of a sync's buffers, which the embeddings or a layer with experts need.

    itemsize: bytes of model.dtype. shared: whether the engine has this device, and `tensor_parallel_size` in all.
    Other layers need less for all known shapes.
    """
    # Of the weights that the engine loads while the sender already gathers the next ones.
    loaded = 1 / tensor_parallel_size if shared else 0.0
    table = itemsize * shape.vocabulary * shape.hidden
    # Gathered embeddings and output layer, a copy of one and its bucket: a weight above the limit is a bucket alone.
    embeddings = table * (3 if shape.tied else 4 + loaded)
    if shape.experts == 1:
        return embeddings
    experts = itemsize * shape.expert_parameters
    gathered = itemsize * shape.layer_parameters - experts + experts / expert_parallel_size
    # The stack of gate and up, which are two of the three weights of an expert: a copy, and the converted one.
    copies = 2 * experts * 2 / 3
    # The buckets of the layer before, until its last one is loaded.
    held = experts * (1 + loaded) if shared else 0.0
    return max(embeddings, gathered + copies + held + 2 * bucket)
