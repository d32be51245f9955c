"""Compiled layers with packed sequences: batches with other counts and lengths use the same compiled code."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import DeviceMesh
from torch.fx import GraphModule
from torch.torch_version import TorchVersion

from rlt_api.blocks.model import Lora
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.packed_attention import Packing, _flash
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

BATCHES = 50
MAX_RECOMPILATIONS = 2


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def draw_lengths() -> Iterator[tuple[int, ...]]:
    """Yield the sequence lengths of each batch: 1 to 12 sequences of 2 to 30 tokens."""
    generator = random.Random(0)
    for _ in range(BATCHES):
        yield tuple(generator.randint(2, 30) for _ in range(generator.randint(1, 12)))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("gradient_checkpointing", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_layers_are_compiled_once_for_all_counts_and_have_the_same_results(
    mesh: DeviceMesh, device: str, tiny_model: str, gradient_checkpointing: bool
) -> None:
    """In float32 on CPUs. On GPUs in bfloat16, where packed sequences use FlashAttention."""
    if device == "cpu" and TorchVersion(torch.__version__) < "2.13":
        pytest.skip("torch 2.11 compiles _sequence_by_sequence's callers for each number of sequences; 2.12 is unknown")
    dtype, tolerance = (torch.bfloat16, 5e-2) if device == "cuda" else (torch.float32, 1e-5)
    options = ModelOptions(mesh=mesh, dtype=dtype, packed=True, gradient_checkpointing=gradient_checkpointing)
    plain, compiled = (
        load_sharded_model("actor", tiny_model, replace(options, compiled=each), response_log_probs)
        for each in (False, True)
    )
    graphs = []
    for lengths in draw_lengths():
        sequences = Sequences.pad([[50]] * len(lengths), [[70] * (each - 1) for each in lengths], pad_token_id=0)
        sequences = sequences.to(torch.device(device))
        expected, result = (model(sequences, temperature=1.0, packed=True)[0] for model in (plain, compiled))
        torch.testing.assert_close(result, expected, atol=tolerance, rtol=0)
        (expected.sum() + result.sum()).backward()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] > 0, "no layer was compiled"
    assert graphs[-1] - graphs[0] <= MAX_RECOMPILATIONS


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["all-weights", "adapters"])
def test_padded_batches_of_all_shapes_are_compiled_once(mesh: DeviceMesh, tiny_model: str, lora: Lora | None) -> None:
    options = ModelOptions(mesh=mesh, dtype=torch.float32, compiled=True, gradient_checkpointing=True, lora=lora)
    model = load_sharded_model("actor", tiny_model, options, response_log_probs)
    graphs = []
    for lengths in draw_lengths():
        sequences = Sequences.pad([[50]] * len(lengths), [[70] * (each - 1) for each in lengths], pad_token_id=0)
        with torch.no_grad():
            model(sequences, temperature=1.0)
        model(sequences, temperature=1.0)[0].sum().backward()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] > 0, "no layer was compiled"
    assert graphs[-1] - graphs[0] <= MAX_RECOMPILATIONS


def test_flash_attention_is_one_graph_for_all_counts() -> None:
    """The compiler traces torch's operator on any device. Its kernel exists on GPUs only and does not run here."""
    graphs = []

    def trace(graph: GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return lambda *_: [torch.empty(0)]

    compiled = torch.compile(_flash, dynamic=True, fullgraph=True, backend=trace)
    for lengths in draw_lengths():
        query, key, value = (torch.randn(1, heads, sum(lengths), 8) for heads in (4, 2, 2))
        compiled(query, key, value, Packing.of(lengths, None, query.device), None, None)
    assert graphs, "nothing was compiled"
    assert len(graphs) - 1 <= MAX_RECOMPILATIONS
    assert any("_varlen_attn" in str(node.target) for node in graphs[0].graph.nodes)


@pytest.mark.gpu
def test_flash_attention_does_not_synchronize_with_the_host() -> None:
    packing = Packing.of((5, 17, 64), None, torch.device("cuda"))
    query, key, value = (
        torch.randn(1, heads, 86, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True) for heads in (4, 2, 2)
    )

    def attend() -> None:
        _flash(query, key, value, packing, None, None).sum().backward()  # type: ignore[no-untyped-call]

    attend()  # loads the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        attend()
    finally:
        torch.cuda.set_sync_debug_mode("default")
