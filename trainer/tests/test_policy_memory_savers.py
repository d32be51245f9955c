"""Recomputation, compilation and packing save memory or time, and do not change results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing import assert_close
from transformers import Qwen3Config

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.families import validate_family
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

pytestmark = pytest.mark.usefixtures("process_group")
SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)


def measure_saved_bytes(files: str, *, gradient_checkpointing: bool) -> int:
    """Return the bytes that a forward pass saves for the backward pass."""
    saved: dict[int, int] = {}
    options = replace(build_options(), gradient_checkpointing=gradient_checkpointing)
    model = load_sharded_model("actor", files, options, response_log_probs)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(Sequences.pad([[50]], [[70] * 256], pad_token_id=0), temperature=1.0)
    weights = {each.to_local().untyped_storage().data_ptr() for each in model.parameters() if isinstance(each, DTensor)}
    return sum(size for pointer, size in saved.items() if pointer not in weights)


def build_options() -> ModelOptions:
    return ModelOptions(mesh=init_device_mesh("cpu", (1,)), dtype=torch.float32)


def test_gradient_checkpointing_saves_fewer_bytes(tiny_model: str) -> None:
    everything = measure_saved_bytes(tiny_model, gradient_checkpointing=False)
    assert measure_saved_bytes(tiny_model, gradient_checkpointing=True) < everything / 2


@pytest.mark.slow
def test_compiled_layers_have_the_same_results(tiny_model: str) -> None:
    options = [replace(build_options(), compiled=compiled) for compiled in (False, True)]
    models = [load_sharded_model("actor", tiny_model, each, response_log_probs) for each in options]
    gradients = []
    torch._dynamo.reset()
    counters.clear()
    for model in models:
        log_probs, _ = model(SEQUENCES, temperature=1.0)
        log_probs.sum().backward()
        gradients.append({name: each.grad for name, each in model.named_parameters()})
    assert counters["stats"]["unique_graphs"] > 0, "no layer was compiled"
    assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)


def test_packed_sequences_are_independent(tiny_model: str) -> None:
    model = load_sharded_model("actor", tiny_model, replace(build_options(), packed=True), response_log_probs)
    together, _ = model(SEQUENCES, temperature=1.0, packed=True)
    for row in range(2):
        alone, _ = model(SEQUENCES.rows(slice(row, row + 1)), temperature=1.0, packed=True)
        assert_close(together[row : row + 1], alone)


def test_a_model_that_cannot_be_packed_is_rejected() -> None:
    config = Qwen3Config(num_hidden_layers=2, layer_types=["full_attention", "linear_attention"])
    with pytest.raises(ValueError, match=r"useRemovePadding .* type qwen3: .* linear_attention layers"):
        validate_family(config, packed=True)
