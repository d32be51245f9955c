"""A colocated engine wakes beside the states of the train worker alone.

On CPUs, RecordingAllocator stands for torch's CUDA allocator: the loop, the train worker and the release are the real
ones. It records the bytes of tensors, which are as on a GPU except for activations. A GPU must still show what the
allocator adds to them: segments that keep unused parts (the metric perf/release_unused_gb), rounding, and the memory of
CUDA and NCCL.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import pytest
import torch
from ranks import join, run_ranks
from recording_allocator import RecordingAllocator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.blocks.training import Training
from rlt_api.rules.memory_parts import GIB, list_activations, list_gradients, list_states
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.rollout.engine import Part
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.telemetry.device_memory import Release, release_memory
from rlt_trainer.workers.train_worker import TrainWorker

JOB: dict[str, Any] = {
    "model": {
        "path": "Qwen/Qwen3-8B",
        "dtype": "bfloat16",
        "useRemovePadding": True,
        "enableGradientCheckpointing": True,
    },
    "data": {"preset": "arithmetic", "maxPromptLength": 1024, "maxResponseLength": 8192},
    "algorithm": {"klLossCoef": 0},
    "training": {"totalSteps": 1, "trainBatchSize": 256, "useDynamicBsz": True, "ppoMaxTokenLenPerDevice": 32768},
    "cluster": {"workers": [{"accelerator": {"resourceName": "nvidia.com/gpu", "count": 8, "memory": "80Gi"}}]},
}
DEVICE = 80 * GIB
SHARE = 0.6 * 80 * GIB
"""Memory of a device in JOB, and gpuMemoryUtilization of it."""


def sum_parts() -> tuple[float, float]:
    """Return the bytes of the states in a train worker of JOB, and of its update (rlt_api.rules.memory)."""
    spec = RLTrainingJobSpec.model_validate(JOB)
    assert spec.model is not None
    size = model_size(spec.model)
    assert size is not None
    states = sum(state.part.bytes for state in list_states(spec, spec.model, size))
    passes = [*list_gradients(spec, spec.model, size), *list_activations(spec, spec.model)]
    return states, states + sum(part.bytes for part in passes)


MARGIN = GIB / sum_parts()[0]
"""What a train worker may keep besides its states, as a share of them: 1 GiB for JOB, and the same share here."""


def test_a_job_needs_the_release() -> None:
    """The states of JOB fit beside the engine with 1 GiB more, and the peak of its update does not."""
    states, update = sum_parts()
    assert states + GIB + SHARE < DEVICE < update + SHARE


def test_memory_that_was_sent_is_collected_before_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's calls for CUDA, which a CPU does not have: a tensor of 30 bytes, 50 sent and closed, and 20 unused."""
    memory = {"tensors": 30, "sent": 50, "unused": 20}

    def collect() -> None:
        memory["unused"] += memory.pop("sent")

    def empty() -> None:
        memory["unused"] = 0

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: memory["tensors"] + memory.get("sent", 0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: sum(memory.values()))
    monkeypatch.setattr(torch.cuda, "ipc_collect", collect)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    assert release_memory(torch.device("cpu")) is None
    assert release_memory(torch.device("cuda")) == Release(cached=20, allocated=30, reserved=30)


def count_state_bytes(actor: Actor) -> int:
    """Count the weights and moments of the policy, and the weights of the reference."""
    models = [each for each in (actor.model, actor.reference) if each is not None]
    moments = [each for one in actor.optimizers for state in one.state.values() for each in state.values()]
    tensors = [*(each for model in models for each in (*model.parameters(), *model.buffers())), *moments]
    local = [each.to_local() if isinstance(each, DTensor) else each for each in tensors]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in local}.values())


def measure_rank(rank: int) -> tuple[int, int]:
    """Return the bytes that a rank has after an update, the probes of a sync and the transfer, and its states."""
    join(rank, 2)
    sequences = Sequences.pad([[1]] * 4, [[2, 3, 4]] * 4, pad_token_id=0)
    zeros = torch.zeros(4, 3)
    batch = MiniBatch(Experience(sequences, zeros, zeros + 1, ref_log_probs=zeros), 24, 8)
    with tempfile.TemporaryDirectory() as folder, RecordingAllocator() as allocator:
        model = Model(from_seed=SeededModel.model_validate({"numHiddenLayers": 4, "hiddenSize": 64}))
        actor = Actor(
            prepare_model_files(model, Path(folder)),
            model=model,
            dtype=torch.bfloat16,
            mesh=init_device_mesh("cpu", (2,)),
            algorithm=Algorithm(),
            training=Training(total_steps=1),
            temperature=1.0,
            max_response_length=3,
        )
        actor.update(batch)
        actor.probe_log_probs(sequences)
        for _ in actor.gather_weights():
            pass
        return allocator.allocated, count_state_bytes(actor)


@pytest.mark.parametrize("releases", [True, False], ids=["released", "kept"])
def test_an_engine_wakes_beside_the_states_alone(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch, releases: bool
) -> None:
    """In three steps of the loop. Without the release, it wakes beside the peak of the update."""
    allocator = RecordingAllocator(releases=releases)
    allocator.replace_that_of_cuda(monkeypatch)
    at_wake: list[int] = []
    workers: list[TrainWorker] = []

    async def wake(engine: TransformersEngine, part: Part) -> None:
        if part == "kv_cache":  # beside the wake of the weights, the sender already gathers them
            at_wake.append(allocator.reserved)

    class ObservedWorker(in_process.OneWorker):
        def __init__(self, config: TrainingConfig) -> None:
            super().__init__(config)
            workers.append(self.worker)

    monkeypatch.setattr(TransformersEngine, "wake", wake)
    monkeypatch.setattr(in_process, "OneWorker", ObservedWorker)
    with allocator:
        steps = in_process.train(
            make_config(workers=1, rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}])
        )
    actor = workers[0]._actor
    states = count_state_bytes(actor)
    released = [round(step["perf/release_reserved_gb/weights"] * GIB) for step in steps]
    # The first sync is before the first update.
    for part, after_updates in {"weights": released, "kv_cache": at_wake[1:]}.items():
        assert len(after_updates) == len(steps) == 3
        if releases:
            assert max(after_updates) <= (1 + MARGIN) * states
        else:
            assert min(after_updates) > (1 + MARGIN) * states
        for step, found in zip(steps, after_updates, strict=True):
            figures = [step[f"perf/release_{name}_gb/{part}"] * GIB for name in ("reserved", "allocated", "unused")]
            assert figures == [
                pytest.approx(found),
                figures[0] - figures[2],
                0 if releases else pytest.approx(found - states, rel=0.01),
            ]
            assert step[f"perf/release_cached_gb/{part}"] > 0


def test_ranks_keep_their_states_alone() -> None:
    """FSDP2 gathers the weights of layers into buffers, and reduces gradients, only with several ranks."""
    for allocated, states in run_ranks(measure_rank, [(rank,) for rank in range(2)]):
        assert allocated <= (1 + MARGIN) * states
