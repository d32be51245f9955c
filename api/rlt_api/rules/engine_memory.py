"""The memory of an engine: its weights in its share of a device, and what remains for the KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.model import Model
from rlt_api.findings.finding import Edit, Finding, use
from rlt_api.model import quantity_value
from rlt_api.rules.layout import WORKERS
from rlt_api.rules.memory_parts import GIB, engine_dtype, engine_weight_bytes
from rlt_api.rules.model_size import Size, model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines, rollout_group, training_group

UTILIZATION = "spec.rollout.gpuMemoryUtilization"
TENSOR_PARALLEL = "spec.rollout.tensorParallelSize"
QUANTIZATION = "spec.rollout.quantization"
CACHE_SHARE = 0.15
"""Share of a device for the KV cache, below which more devices per engine come first."""
MIN_CACHE_SHARE = 0.05
"""Share of a device for the KV cache, below which an engine may not start: the size in a name is a lower bound."""
MAX_UTILIZATION = 0.9
"""vLLM's gpu_memory_utilization in its examples. The rest is for NCCL, CUDA's context and fragmentation."""
INVOLVED = tuple(f"spec.rollout.{name}" for name in ("engine", "mode", "tensorParallelSize"))


def read_trained(spec: RLTrainingJobSpec) -> tuple[Model, Size] | None:
    """Return the model and its size; None if the size is unknown."""
    size = model_size(spec.model) if spec.model else None
    return (spec.model, size) if spec.model and size else None


def engine_group(spec: RLTrainingJobSpec) -> WorkerGroup:
    """Return the worker group whose devices have the engines."""
    return rollout_group(spec) or training_group(spec)


@dataclass(frozen=True)
class _Engine:
    """A vLLM engine: its weights on all devices together, and the memory of one device, in bytes."""

    model: Model
    size: Size
    group: WorkerGroup
    weights: float
    share: float
    """The part of a device that vLLM uses: gpuMemoryUtilization."""
    device: float
    memory: str
    """The memory of a device as given."""


def _read_engine(spec: RLTrainingJobSpec) -> _Engine | None:
    """Return None without vLLM, or if a size is unknown."""
    trained = read_trained(spec)
    group = engine_group(spec)
    accelerator = group.accelerator
    if not has_engines(spec) or spec.rollout.engine != "vllm":
        return None
    if trained is None or accelerator is None or not accelerator.memory:
        return None
    device = quantity_value(accelerator.memory)
    weights = engine_weight_bytes(spec, *trained)
    share = spec.rollout.gpu_memory_utilization * device
    return _Engine(*trained, group, weights, share, device, str(accelerator.memory))


def find_engine_problem(spec: RLTrainingJobSpec) -> Finding | None:
    """Return the finding for an engine whose weights fill its share of a device; None if they do not."""
    engine = _read_engine(spec)
    if engine is None:
        return None
    weights = engine.weights / spec.rollout.tensor_parallel_size
    if weights < engine.share:
        return None
    message = (
        f"of {engine.memory} is {engine.share / GIB:.3g} GiB, and the engine's {engine_dtype(spec, engine.model)} "
        f"weights need {weights / GIB:.3g} GiB ({engine.size.source}), which leaves no memory for the KV cache"
    )
    index = spec.cluster.workers.index(engine.group)
    field = f"{WORKERS.partition('[')[0]}[{index}].accelerator.memory"
    involved = (engine.size.field, "spec.model.dtype", field, QUANTIZATION, *INVOLVED)
    fix, edits = _suggest_engine_fix(spec, engine)
    value = str(spec.rollout.gpu_memory_utilization)
    return Finding(UTILIZATION, value, message, fix, rule="engine-memory", involved=involved, edits=edits)


def validate_engine_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The share of a device for vLLM, gpuMemoryUtilization, must hold the engine's weights and a KV cache."""
    if finding := find_engine_problem(spec):
        yield finding


def _suggest_engine_fix(spec: RLTrainingJobSpec, engine: _Engine) -> tuple[str, tuple[Edit, ...]]:
    """Return the fix for an engine whose weights do not fit into its share: the smallest tensorParallelSize that
    leaves CACHE_SHARE of a device for the KV cache, and then a larger share of the device."""
    assert engine.group.accelerator
    cache = CACHE_SHARE * engine.device
    count = engine.group.accelerator.count
    sizes = [size for size in range(spec.rollout.tensor_parallel_size + 1, count + 1) if count % size == 0]
    fitting = next((size for size in sizes if engine.weights / size <= engine.share - cache), None)
    minimum = ceil((engine.weights / spec.rollout.tensor_parallel_size + cache) / engine.device * 20) / 20
    fixes = []
    edits: tuple[Edit, ...] = ()
    if fitting:
        fixes.append(f"use rollout.tensorParallelSize: {fitting}")
        edits += use(TENSOR_PARALLEL, fitting)
    if minimum <= MAX_UTILIZATION:
        fixes.append(f"gpuMemoryUtilization {minimum:g} or more" if fixes else f"use {minimum:g} or more")
        edits += use(UTILIZATION, minimum)
    return ", or ".join(fixes) or "use a larger rollout.tensorParallelSize, or accelerators with more memory", edits


def cache_share(spec: RLTrainingJobSpec) -> float | None:
    """Return the share of a device for an engine's KV cache; None without vLLM, or if a size is unknown."""
    engine = _read_engine(spec)
    if engine is None:
        return None
    return (engine.share - engine.weights / spec.rollout.tensor_parallel_size) / engine.device


def explain_small_cache(spec: RLTrainingJobSpec) -> str | None:
    """Return the sum for an engine that keeps less than MIN_CACHE_SHARE of a device for its cache; None for others."""
    engine = _read_engine(spec)
    share = cache_share(spec)
    if engine is None or share is None or not 0 < share < MIN_CACHE_SHARE:
        return None
    cache = share * engine.device
    fix, _ = _suggest_engine_fix(spec, engine)
    return f"leaves {cache / GIB:.3g} GiB of {engine.memory} for the KV cache and the engine; {fix}"


RULES = (validate_engine_memory,)
