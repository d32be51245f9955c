"""Bytes that the output layer reads and writes for a token of the update, eager and compiled.

Eager operations are counted as they run, with arguments and results as large as the logits. For compiled ones,
inductor counts the buffers of each kernel. The matrix products are the same in both.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from bench_report import Row
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlt_trainer.policy.log_probs import token_log_probs
from rlt_trainer.policy.logit_chunk import LogitScale

TOKENS = 128
VOCABULARY = 20_000
"""One chunk. The bytes of a logit do not depend on it."""
HIDDEN = 16
QWEN_VOCABULARY = 151_936
MAX_MB = 8.0
PRODUCTS = "aten.mm.default"


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all arguments and results that are as large as the logits, by operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it unless it is a view."""
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
            large = sum(each.nbytes for each in tensors if each.numel() >= TOKENS * VOCABULARY)
            self.bytes[str(function)] = self.bytes.get(str(function), 0) + large
        return result


def measure() -> Row:
    """Count a forward and a backward pass in bfloat16, without a gradient of the entropy and with it."""
    eager = [count_eager(entropy=entropy) for entropy in (False, True)]
    products = eager[0][1]
    compiled = [count_compiled(entropy=entropy) + products for entropy in (False, True)]
    plain, with_entropy = (to_megabytes(each) for each in compiled)
    before, before_with_entropy = (to_megabytes(total) for total, _ in eager)
    return Row(
        "bytes of the output layer for a token, vocabulary 151,936, bfloat16, with useTorchCompile",
        f"at most {MAX_MB:.0f} MB",
        f"{plain:.1f} MB, {with_entropy:.1f} MB with the entropy's gradient; without compilation {before:.1f} and "
        f"{before_with_entropy:.1f} MB",
        max(plain, with_entropy) <= MAX_MB,
        {"compiled": compiled, "eager": [total for total, _ in eager]},
    )


def count_eager(*, entropy: bool) -> tuple[float, float]:
    """Return the bytes of a logit, and the bytes of the matrix products."""
    with Counter() as counter:
        run_passes(LogitScale(), entropy=entropy)
    logits = TOKENS * VOCABULARY
    return sum(counter.bytes.values()) / logits, counter.bytes[PRODUCTS] / logits


def count_compiled(*, entropy: bool) -> float:
    """Return the bytes of a logit in compiled kernels."""
    total = 0
    generate = GraphLowering.codegen

    def count(graph: GraphLowering) -> Any:
        nonlocal total
        code = generate(graph)
        total += graph.count_bytes()[0]
        return code

    torch._dynamo.reset()
    with patch.object(GraphLowering, "codegen", count), config.patch(force_disable_caches=True):
        run_passes(LogitScale(compiled=True), entropy=entropy)
    return total / (TOKENS * VOCABULARY)


def run_passes(scale: LogitScale, *, entropy: bool) -> None:
    """Compute log-probabilities and entropies, and their gradients."""
    hidden, weight = (
        torch.randn(size, HIDDEN, dtype=torch.bfloat16, requires_grad=True) for size in (TOKENS, VOCABULARY)
    )
    log_probs, entropies = token_log_probs(hidden, weight, None, torch.arange(TOKENS), scale)
    (log_probs.sum() + (entropies.sum() if entropy else 0)).backward()  # type: ignore[no-untyped-call]


def to_megabytes(bytes_of_a_logit: float) -> float:
    """Return the megabytes of a token with Qwen's vocabulary."""
    return bytes_of_a_logit * QWEN_VOCABULARY / 1e6


if __name__ == "__main__":
    print(measure())
