"""The memory that the validation predicts for an update and a weight sync, against the tensors of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

from rlt_api.rules.activations import CHUNK_COPIES, CHUNK_LOGITS
from rlt_api.rules.weight_sync_buffers import BUCKET_BYTES as PREDICTED_BUCKET_BYTES
from rlt_api.rules.weight_sync_buffers import weight_sync_bytes
from rlt_trainer.policy.log_probs import CHUNK_ELEMENTS, GPU_CHUNK_ELEMENTS, count_chunk_logits
from rlt_trainer.rollout.buckets import BUCKET_BYTES

MAX_ERROR = 0.15
SHAPES: list[dict[str, Any]] = [
    {},
    {"hiddenSize": 256, "intermediateSize": 512, "numHiddenLayers": 2},
    {"hiddenSize": 64, "intermediateSize": 1024},
    {"numHiddenLayers": 12, "hiddenSize": 64, "intermediateSize": 128},
    {"numKeyValueHeads": 4},
    {"packed": True},
    {"packed": True, "tokens": 2048, "numHiddenLayers": 8},
    {"checkpointing": True, "numHiddenLayers": 12},
    {"checkpointing": True, "packed": True, "tokens": 2048},
    {"dtype": "bfloat16"},
    {"dtype": "bfloat16", "packed": True, "hiddenSize": 256},
    {"dtype": "bfloat16", "packed": True, "checkpointing": True, "tokens": 2048},
]
"""Dimensions of the seeded model, and settings of the run."""


def test_the_prediction_and_the_trainer_have_the_same_chunks_and_buckets() -> None:
    assert CHUNK_LOGITS == {False: CHUNK_ELEMENTS, True: GPU_CHUNK_ELEMENTS}
    fused = count_chunk_logits(on_gpu=True, fused=True)  # of the logits in float32 and their gradient in 16 bits
    assert 6 * fused <= CHUNK_COPIES * 4 * CHUNK_LOGITS[True]
    assert PREDICTED_BUCKET_BYTES == BUCKET_BYTES


@pytest.mark.slow
@pytest.mark.long
def test_the_prediction_is_within_15_percent_of_the_tensors(tmp_path: Path) -> None:
    (results,) = run_ranks(measure, [(tmp_path, SHAPES)])
    errors = {str(shape): predicted / real - 1 for shape, (predicted, real) in zip(SHAPES, results, strict=True)}
    assert {shape: error for shape, error in errors.items() if abs(error) > MAX_ERROR} == {}


def measure(folder: Path, shapes: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Return the predicted and the real peak bytes of an update with two micro-batches, for each shape."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    return [measure_shape(folder / str(number), **shape) for number, shape in enumerate(shapes)]


def measure_shape(
    folder: Path,
    *,
    dtype: str = "float32",
    packed: bool = False,
    checkpointing: bool = False,
    tokens: int = 1024,
    **dimensions: int,
) -> tuple[float, int]:
    import torch
    from peak_bytes import PeakBytes
    from torch.distributed.device_mesh import init_device_mesh

    from rlt_api.rules.memory_parts import list_activations, list_gradients, list_states
    from rlt_api.rules.model_size import model_size
    from rlt_api.spec.job_spec import RLTrainingJobSpec
    from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
    from rlt_trainer.policy.actor import Actor
    from rlt_trainer.policy.model_files import DTYPES, prepare_model_files

    length = tokens if packed else tokens // 4  # the rule counts one packed sequence, and all padded rows
    rows = tokens // length
    model = {
        "fromSeed": dimensions,
        "dtype": dtype,
        "useRemovePadding": packed,
        "enableGradientCheckpointing": checkpointing,
    }
    worker = {"accelerator": {"resourceName": "nvidia.com/gpu", "count": 1, "memory": "80Gi"}}
    spec = RLTrainingJobSpec.model_validate(
        {
            "model": model,
            "data": {"preset": "arithmetic", "maxPromptLength": 1, "maxResponseLength": length - 1},
            "algorithm": {"klLossCoef": 0},
            "training": {"totalSteps": 1, "trainBatchSize": 2 * rows, "ppoMicroBatchSizePerDevice": rows},
            "rollout": {"responsesPerPrompt": 1},
            "cluster": {"workers": [worker]},
        }
    )
    assert spec.model is not None
    size = model_size(spec.model)
    assert size is not None
    states = [state.part for state in list_states(spec, spec.model, size)]
    passes = [*list_gradients(spec, spec.model, size), *list_activations(spec, spec.model)]

    actor = Actor(
        prepare_model_files(spec.model, folder),
        model=spec.model,
        dtype=DTYPES[dtype],
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=spec.algorithm,
        training=spec.training,
        temperature=1.0,
        max_response_length=length,
    )
    sequences = Sequences.pad([[1]] * 2 * rows, [[2] * (length - 1)] * 2 * rows, pad_token_id=0)
    zeros = torch.zeros(2 * rows, length - 1)
    batch = MiniBatch(Experience(sequences, zeros, zeros + 1), 2 * rows * (length - 1), 2 * rows)
    actor.update(batch)  # creates the moments
    moments = [each for one in actor.optimizers for state in one.state.values() for each in state.values()]
    with PeakBytes([*actor.model.parameters(), *moments]) as counted:
        actor.update(batch)
    return sum(part.bytes for part in [*states, *passes]), counted.peak


SYNCS: list[dict[str, Any]] = [
    {"vocab_size": 8192},
    {"vocab_size": 8192, "tie_word_embeddings": True},
    {"num_experts": 8, "moe_intermediate_size": 256},
    {"num_experts": 16, "moe_intermediate_size": 128, "hidden_size": 128},
]
"""Dimensions of the models that are sent: large embeddings, or large layers of experts."""


@pytest.mark.slow
@pytest.mark.long
def test_the_prediction_for_a_weight_sync_is_within_15_percent_of_the_tensors(tmp_path: Path) -> None:
    (results,) = run_ranks(measure_syncs, [(tmp_path, SYNCS)])
    errors = {str(sizes): predicted / real - 1 for sizes, (predicted, real) in zip(SYNCS, results, strict=True)}
    assert {sizes: error for sizes, error in errors.items() if abs(error) > MAX_ERROR} == {}


def measure_syncs(folder: Path, sizes: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Return the predicted and the real peak bytes of a sync, without the shards and what the engine allocates."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    return [measure_sync(folder / str(number), **each) for number, each in enumerate(sizes)]


def measure_sync(folder: Path, **sizes: Any) -> tuple[float, int]:
    """Send a model. As in vLLM, the buckets of an expert layer are held until the last one arrives."""
    import torch
    from peak_bytes import PeakBytes
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

    from rlt_api.blocks.algorithm import Algorithm
    from rlt_api.blocks.model import Model
    from rlt_api.blocks.training import Training
    from rlt_api.rules.model_shape import Shape
    from rlt_trainer.policy.actor import Actor
    from rlt_trainer.policy.sharding import local_shards
    from rlt_trainer.policy.weight_files import to_file_format
    from rlt_trainer.rollout.buckets import Bucket, pack_buckets
    from rlt_trainer.rollout.expert_stacks import iterate_experts

    experts = sizes.get("num_experts", 1)
    chosen = 2 if "num_experts" in sizes else 1
    layers = 4
    common = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers} | sizes
    common |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    config = Qwen3MoeConfig(**common, num_experts_per_tok=chosen) if experts > 1 else Qwen3Config(**common)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    width = chosen * sizes["moe_intermediate_size"] if experts > 1 else 128
    tied = sizes.get("tie_word_embeddings", False)
    dimensions = (common["hidden_size"], width, layers, 32, 16, common["vocab_size"])
    shape = Shape(*dimensions, tied=tied, normed=True, experts=experts, experts_per_token=chosen)
    limit = 2 * (shape.expert_parameters if experts > 1 else common["vocab_size"] * 16) // 5

    actor = Actor(
        str(folder),
        model=Model(dtype="bfloat16"),
        dtype=torch.bfloat16,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm(kl_loss_coef=0),
        training=Training(total_steps=1),
        temperature=1.0,
        max_response_length=8,
    )
    held: list[Bucket] = []
    sent = pack_buckets(
        to_file_format(actor.model, actor.gather_weights()),
        lambda size: torch.empty(size, dtype=torch.uint8),
        limit=limit,
    )
    shards = list(local_shards(actor.model))
    with PeakBytes(shards) as counted:
        before = sum(shard.nbytes for shard in shards)
        for bucket in sent:
            held.append(bucket)
            names = [name for name, _ in iterate_experts(bucket.unpack())]
            if experts == 1 or any(f"experts.{experts - 1}.down" in name for name in names):
                held = held[-1:]
    predicted = weight_sync_bytes(shape, 2, shared=True, tensor_parallel_size=2**30, bucket=limit)
    return predicted, counted.peak - before
