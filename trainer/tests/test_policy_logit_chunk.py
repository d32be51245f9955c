"""Compiled chunks of logits against the eager ones: equal results, and one compilation for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from rlt_trainer.policy import log_probs, logit_chunk
from rlt_trainer.policy.log_probs import count_chunk_logits, token_log_probs
from rlt_trainer.policy.logit_chunk import LogitScale

VOCABULARY = 37
SCALES = [LogitScale(), LogitScale(1.7), LogitScale(0.5, softcap=2.0)]
MAX_RECOMPILATIONS = 2
FUNCTIONS = ("log_probs", "gradient")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The functions as the compiler traces them, without a break. Their operations run one by one: no C++ compiler."""
    torch._dynamo.reset()
    counters.clear()
    for name in FUNCTIONS:
        function: Callable[..., Any] = getattr(logit_chunk, f"_compute_{name}")
        traced = torch.compile(function, dynamic=True, fullgraph=True, backend="aot_eager")
        monkeypatch.setattr(logit_chunk, f"_compiled_{name}", traced)
    yield
    torch._dynamo.reset()


def compute(
    scale: LogitScale, count: int, targets: int, *, entropy: bool, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return log-probabilities, entropies, and the gradients of hidden states and weights."""
    generator = torch.Generator().manual_seed(count)
    hidden, weight = (
        torch.randn(size, 5, generator=generator).to(dtype).requires_grad_() for size in (count, VOCABULARY)
    )
    shape = (count,) if targets == 1 else (count, targets)
    chosen = torch.randint(VOCABULARY, shape, generator=generator)
    values, entropies = token_log_probs(hidden, weight, None, chosen, scale)
    factors = torch.randn(shape, generator=generator)
    loss = (values * factors).sum() + (entropies.sin().sum() if entropy else 0.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert weight.grad is not None
    return [values.detach(), entropies.detach(), hidden.grad, weight.grad]


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("scale", SCALES)
def test_traced_chunks_have_the_eager_results(traced: None, scale: LogitScale, targets: int, entropy: bool) -> None:
    eager = compute(scale, 7, targets, entropy=entropy)
    compiled = compute(replace(scale, compiled=True), 7, targets, entropy=entropy)
    assert counters["stats"]["unique_graphs"] == 2
    for result, expected in zip(compiled, eager, strict=True):
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-6)


def test_chunks_of_all_sizes_have_one_compilation(traced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_probs, "CHUNK_ELEMENTS", 4 * VOCABULARY)
    for count in (9, 1, 4, 6, 3, 11):  # the last chunk has 1 to 4 tokens
        compute(LogitScale(compiled=True), count, 1, entropy=False)
    assert counters["stats"]["unique_graphs"] - len(FUNCTIONS) <= len(FUNCTIONS) * MAX_RECOMPILATIONS


def test_fused_chunks_are_larger_and_have_the_results_of_one_chunk(
    traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where eager chunks and those with several targets stay small."""
    sizes = list[int]()
    compute_chunk = logit_chunk._compiled_log_probs

    def count(logits: Tensor, *arguments: Any) -> Any:
        sizes.append(len(logits))
        return compute_chunk(logits, *arguments)

    def choose(*, on_gpu: bool, fused: bool) -> int:
        return count_chunk_logits(on_gpu=True, fused=fused)

    monkeypatch.setattr(logit_chunk, "_compiled_log_probs", count)
    scale = LogitScale(compiled=True)
    whole = {targets: compute(scale, 9, targets, entropy=True, dtype=torch.bfloat16) for targets in (1, 2)}
    sizes.clear()
    monkeypatch.setattr(log_probs, "GPU_CHUNK_ELEMENTS", 2 * VOCABULARY)
    monkeypatch.setattr(log_probs, "count_chunk_logits", choose)
    for targets, expected in ((1, [4, 4, 1]), (2, [2, 2, 2, 2, 1])):
        found = compute(scale, 9, targets, entropy=True, dtype=torch.bfloat16)
        assert sizes == expected
        sizes.clear()
        for result, value in zip(found, whole[targets], strict=True):
            torch.testing.assert_close(result, value, atol=2e-2, rtol=2e-2)
    compute(scale, 9, 1, entropy=True)
    assert sizes == [2, 2, 2, 2, 1], "a gradient in float32 is twice as large"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("entropy", [False, True])
def test_compiled_chunks_have_the_eager_results(entropy: bool) -> None:
    """With the C++ compiler of torch on CPUs."""
    for scale in SCALES:
        eager = compute(scale, 7, 1, entropy=entropy)
        compiled = compute(replace(scale, compiled=True), 7, 1, entropy=entropy)
        for result, expected in zip(compiled, eager, strict=True):
            torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-6)
