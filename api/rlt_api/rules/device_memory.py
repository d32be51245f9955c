"""What the processes on one accelerator hold together, at the moments of a step when they hold most.

A colocated trainer releases its cached memory after an update, before vLLM allocates its weights for the sync, and
again after the sync, before vLLM allocates its KV cache. Fragmentation of torch's allocator is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.blocks.model import Model
from rlt_api.rules.memory_parts import (
    GIB,
    Part,
    Phase,
    engine_dtype,
    engine_weight_bytes,
    list_activations,
    list_gradients,
    list_states,
)
from rlt_api.rules.model_shape import model_shape
from rlt_api.rules.model_size import BYTES, Size
from rlt_api.rules.weight_sync_buffers import weight_sync_bytes
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines

PROCESS_BYTES = 2 * GIB
"""Memory of a process on a device in addition to torch's tensors and to vLLM's gpuMemoryUtilization, which vLLM counts
from after the start of NCCL (v1/worker/gpu_worker.py, vLLM 0.32). An estimate, not measured with rlt:

- a CUDA context with its kernels, about 0.5 GiB (estimated);
- NCCL's buffers, about 1 GiB in each process of an engine on 4 devices (vllm-project/vllm#51485);
- a train worker: workspaces of cuBLAS and rounding of torch's allocator, 0.5 GiB (estimated);
- vLLM: its CUDA graphs, which it keeps while it sleeps, like context and NCCL's buffers (vllm-project/vllm#45623).

Others measured a sleeping vLLM: 1.2 GiB for Qwen3-4B on one device (vllm-project/vllm#28714), 7 GiB for Kimi-K2.6 on 8
(vllm-project/vllm#47654)."""


@dataclass(frozen=True)
class Moment:
    """The parts that are on a device at the same time."""

    phase: Phase
    trainer: list[Part]
    engine: Part | None = None
    """What vLLM holds. None: nothing, apart from the overhead of its process, which is in `trainer`."""

    @property
    def parts(self) -> list[Part]:
        """All parts, the engine's first."""
        return [*([self.engine] if self.engine else []), *self.trainer]

    @property
    def bytes(self) -> float:
        """The sum of all parts."""
        return sum(part.bytes for part in self.parts)


def is_colocated(spec: RLTrainingJobSpec) -> bool:
    """Whether train workers share their devices with vLLM."""
    return has_engines(spec) and spec.rollout.mode == "colocated" and spec.rollout.engine == "vllm"


def engine_share(spec: RLTrainingJobSpec, device: float) -> Part | None:
    """Return vLLM's share of a device with `device` bytes. None if it has none."""
    if not is_colocated(spec):
        return None
    return Part("for vLLM (gpuMemoryUtilization)", spec.rollout.gpu_memory_utilization * device)


def describe_update(
    spec: RLTrainingJobSpec, model: Model, size: Size, device: float, *, all_longest: bool = False
) -> Moment:
    """Return what is held at the peak of an update. all_longest: with packed responses of maximum length alone."""
    passes = [*list_gradients(spec, model, size), *list_activations(spec, model, all_longest=all_longest)]
    engine = None if spec.rollout.free_cache_engine else engine_share(spec, device)
    return Moment("update", [*_on_device(spec, model, size, "update"), *passes, _overhead(spec)], engine)


def list_moments(spec: RLTrainingJobSpec, model: Model, size: Size, device: float) -> list[Moment]:
    """List the moments of a step at which a device of `device` bytes holds most.

    During a sync vLLM's KV cache is not allocated yet (freeCacheEngine). The weights of the trainer are on the device
    also after it, when the log-probabilities of both are compared.
    """
    moments = [describe_update(spec, model, size, device)]
    if not has_engines(spec):
        return moments
    states = _on_device(spec, model, size, "sync")
    share = engine_share(spec, device)
    weights = engine_weight_bytes(spec, model, size) / spec.rollout.tensor_parallel_size
    loading = Part(f"{engine_dtype(spec, model)} weights of the engine", weights)
    during = loading if share and spec.rollout.free_cache_engine else share
    moments.append(Moment("sync", [*states, *_list_buffers(spec, model), _overhead(spec)], during))
    if during is not share:
        moments.append(Moment("sync", [*states, _overhead(spec)], share))
    return moments


def _on_device(spec: RLTrainingJobSpec, model: Model, size: Size, phase: Phase) -> list[Part]:
    states = list_states(spec, model, size)
    return [state.part for state in states if phase in state.phases or not state.offloaded]


def _list_buffers(spec: RLTrainingJobSpec, model: Model) -> list[Part]:
    """The buffers of a sync to vLLM. Empty if they are unknown, and for adapters alone."""
    shape = model_shape(model)
    adapters = model.lora is not None and model.lora.sync_adapters
    if shape is None or adapters or spec.rollout.engine != "vllm" or spec.framework.type != "builtin":
        return []
    size = weight_sync_bytes(
        shape,
        BYTES[model.dtype],
        shared=is_colocated(spec),
        tensor_parallel_size=spec.rollout.tensor_parallel_size,
        expert_parallel_size=spec.training.expert_parallel_size,
    )
    return [Part("buffers of the weight sync", size)]


def _overhead(spec: RLTrainingJobSpec) -> Part:
    """The overhead of the train worker's process, and of the engine's on the same device."""
    if is_colocated(spec):
        return Part("for CUDA, NCCL and CUDA graphs of trainer and engine", 2 * PROCESS_BYTES)
    return Part("for CUDA and NCCL", PROCESS_BYTES)
