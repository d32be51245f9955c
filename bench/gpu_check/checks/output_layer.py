"""Softmax, entropy and gradient of the logits, eager and compiled: their bytes for a token, and the size of a chunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from unittest.mock import patch

import torch
from torch import Tensor

from gpu_check.figures import Figure
from gpu_check.settings import Settings
from rlt_trainer.policy import log_probs
from rlt_trainer.policy.logit_chunk import LogitScale, compute_gradient, compute_log_probs

MAX_MB = 8.0
"""Of a token with Qwen's vocabulary, in compiled chunks."""
PRODUCT_BYTES = 8
"""Of a logit, in the matrix products: written twice in bfloat16, and its gradient read twice."""
MAX_PEAK_BYTES = 2.2
"""Of a logit, beside the logits. COMPILED_CHUNKS relies on it."""
CHUNKS = (2**26, 2**27, 2**28, 2**29)
"""Logits of a chunk to compare. The one of compiled chunks on GPUs is the third."""
ROUNDS = 5


def run(settings: Settings) -> Iterator[Figure]:
    """Measure the logits of one chunk, and then all tokens of a micro-batch in chunks of different sizes."""
    tokens, vocabulary, hidden = settings.choose((8192, 151_936, 1024), (64, 1024, 32))
    copied = torch.empty(settings.choose(2**30, 2**20), dtype=torch.uint8, device=settings.device)
    bandwidth = 2 * len(copied) / measure(settings, copied.clone)
    del copied
    yield Figure("a copy on the device, read and written", bandwidth / 1e9, "GB/s")
    rows = settings.choose(log_probs.GPU_CHUNK_ELEMENTS // vocabulary, 8)
    logits = torch.randn(rows, vocabulary, dtype=torch.bfloat16, device=settings.device)
    for is_compiled in (False, True):
        for has_entropy in (False, True):
            passes = build_passes(logits, compiled=is_compiled, entropy=has_entropy)
            seconds = measure(settings, passes) / rows
            megabytes = (seconds * bandwidth + PRODUCT_BYTES * vocabulary) / 1e6
            kind = f"{'compiled' if is_compiled else 'eager'}{', gradient of the entropy' if has_entropy else ''}"
            yield Figure(
                f"output layer, {kind}: bytes of a token",
                megabytes,
                "MB",
                passed=None if settings.rehearse or not is_compiled else megabytes < MAX_MB,
                note=f"its time at the speed of the copy, and {PRODUCT_BYTES} for each logit; at most {MAX_MB:.0f} MB",
            )
            if not settings.rehearse:
                added = measure_peak(passes) / logits.numel()
                passed = added < MAX_PEAK_BYTES if is_compiled else None
                note = f"at most {MAX_PEAK_BYTES}: the gradient alone"
                yield Figure(f"output layer, {kind}: peak bytes of a logit", added, "bytes", passed=passed, note=note)
    del logits
    for chunk in CHUNKS:
        with patch.object(log_probs, "count_chunk_logits", lambda size=chunk, **_: size):
            seconds = measure(settings, build_update(settings, tokens, vocabulary, hidden))
        yield Figure(f"output layer, compiled, chunks of {chunk:,} logits: {tokens:,} tokens", 1e3 * seconds, "ms")


def build_passes(logits: Tensor, *, compiled: bool, entropy: bool) -> Callable[[], object]:
    """Build the function of both passes over the logits [n, V], without the matrix products."""
    scale = LogitScale(compiled=compiled)
    targets = torch.zeros(len(logits), 1, dtype=torch.int64, device=logits.device)
    gradient = torch.ones(len(logits), device=logits.device)

    def run_passes() -> Tensor:
        _, entropies, normalizer = compute_log_probs(logits, targets, scale)
        grad_entropy = gradient if entropy else None
        return compute_gradient(
            logits, targets, scale, entropies, normalizer, gradient[:, None], grad_entropy, logits.dtype
        )

    return run_passes


def build_update(settings: Settings, tokens: int, vocabulary: int, width: int) -> Callable[[], object]:
    """Build the function of log-probabilities and their gradients, with the matrix products."""
    hidden, weight = (
        torch.randn(size, width, dtype=torch.bfloat16, device=settings.device, requires_grad=True)
        for size in (tokens, vocabulary)
    )
    targets = torch.zeros(tokens, dtype=torch.int64, device=settings.device)

    def update() -> None:
        found, _ = log_probs.token_log_probs(hidden, weight, None, targets, LogitScale(compiled=True))
        found.sum().backward()  # type: ignore[no-untyped-call]
        hidden.grad = weight.grad = None

    return update


def measure(settings: Settings, function: Callable[[], object]) -> float:
    """Return the seconds of a call. The first one compiles, and fills the allocator."""
    seconds = []
    for _ in range(1 + ROUNDS):
        start = time.perf_counter()
        function()
        if settings.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:])


def measure_peak(function: Callable[[], object]) -> int:
    """Return the bytes of the GPU that a call allocates at its peak."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return torch.cuda.max_memory_allocated() - before
