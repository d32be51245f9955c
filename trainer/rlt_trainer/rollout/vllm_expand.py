"""vLLM's repetition of sampling parameters for the tokens of a draft, on CPUs.

vLLM 0.32's own function for CPUs writes into a copy of its output (vllm/utils/cpu_triton_utils.py:
_expand_kernel_impl), so that the logits of drafts are divided by uninitialized memory instead of the temperature.
"""

from __future__ import annotations

import torch

KERNEL = "vllm.v1.sample.rejection_sampler.expand_kernel"


def replace_expand() -> None:
    """Let this process use `expand`, if vLLM has no Triton: on CPUs. Call it after vLLM has replaced its kernels."""
    from vllm.triton_utils import HAS_TRITON
    from vllm.triton_utils.dispatcher import register_kernels

    if not HAS_TRITON:
        register_kernels({KERNEL: expand})


def expand(
    output: torch.Tensor,
    values: torch.Tensor,
    ends: torch.Tensor,
    replace_from: float,
    replace_to: float,
    max_count: int = 0,
) -> None:
    """Write the value of each request once for each of its draft tokens, with `replace_to` for `replace_from`.

    output: [tokens]. values: [requests]. ends: [requests], the number of draft tokens up to a request, inclusive.
    max_count: the maximum number of draft tokens of a request, which Triton's kernel needs.
    """
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    kept = values.masked_fill(values == replace_from, replace_to)
    output.copy_(kept.repeat_interleave(counts))
