"""Lower bounds of the memory of accelerators and pods. Only a job that cannot fit is rejected; the message has the sum.

Bytes per parameter: the trainer keeps float32 weights (4), gradients (4) and AdamW's two moments (8), and with a KL
term the reference's float32 weights (4), all sharded over the train workers that share a copy (FSDP2, arXiv
1910.02054). The engine keeps its own weights in model.dtype on each device, divided by its tensor parallel size.
Activations, buffers and the CUDA context are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.model import Model
from rlt_api.finding import Finding
from rlt_api.model import quantity_value
from rlt_api.rules.layout import TRAIN_WORKER_FIELDS, WORKERS, count_train_workers, training_group
from rlt_api.rules.lengths import LENGTHS, MODEL_LEN, max_sequence_length
from rlt_api.rules.model_size import BYTES, Size, kv_bytes_per_token, model_size
from rlt_api.spec import RLTrainingJobSpec

GIB = 2**30
UTILIZATION = "spec.rollout.gpuMemoryUtilization"
ACCELERATOR_MEMORY = f"{WORKERS}.accelerator.memory"
OFFLOAD = tuple(f"spec.training.fsdp.{name}" for name in ("fsdpSize", "paramOffload", "optimizerOffload"))
REFERENCE = ("spec.algorithm.klLossCoef", "spec.training.reference.paramOffload")
"""The fields that determine whether the reference weights exist, and where."""


@dataclass(frozen=True)
class Part:
    """A term of the sum."""

    label: str
    bytes: float

    def __str__(self) -> str:
        return f"{self.bytes / GIB:.3g} GiB {self.label}"


def list_trainer_parts(spec: RLTrainingJobSpec, size: Size, *, offloaded: bool, gradients: bool = True) -> list[Part]:
    """List the state of one train worker on its device, or with `offloaded` its state in CPU memory."""
    fsdp, reference = spec.training.fsdp, spec.training.reference
    shards = (fsdp.fsdp_size if fsdp else None) or count_train_workers(training_group(spec))
    params, optimizer = (fsdp.param_offload, fsdp.optimizer_offload) if fsdp else (False, False)
    weights = 4 * size.parameters / shards
    parts = [
        (params, Part("float32 weights", weights)),
        (optimizer, Part("AdamW's float32 moments", 2 * weights)),
    ]
    if gradients:
        parts.append((False, Part("float32 gradients", weights)))
    if spec.algorithm.kl_loss_coef > 0:
        parts.append((bool(reference and reference.param_offload), Part("float32 reference weights", weights)))
    return [part for on_cpu, part in parts if on_cpu is offloaded]


def validate_accelerator_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """accelerator.memory must hold the state of the trainer and, in mode colocated, the engine. Otherwise vLLM has no
    memory for its KV cache, or the first step runs out of memory."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or not group.accelerator.memory:
        return
    model, size = trained
    device = quantity_value(group.accelerator.memory)
    colocated = spec.rollout.mode == "colocated" and spec.rollout.engine == "vllm"
    share = spec.rollout.gpu_memory_utilization * device if colocated else 0.0
    involved = (size.field, "spec.model.dtype", ACCELERATOR_MEMORY, *TRAIN_WORKER_FIELDS, *OFFLOAD, *REFERENCE)
    engine_fields = ("spec.rollout.engine", "spec.rollout.mode", "spec.rollout.tensorParallelSize")
    if colocated:
        weights = BYTES[model.dtype] * size.parameters / spec.rollout.tensor_parallel_size
        if weights >= share:
            yield Finding(
                UTILIZATION,
                str(spec.rollout.gpu_memory_utilization),
                f"of {group.accelerator.memory} is {share / GIB:.3g} GiB, and the engine's {model.dtype} weights "
                f"need {weights / GIB:.3g} GiB ({size.source}), which leaves no memory for the KV cache",
                _suggest_share(weights, device)
                or "use a larger rollout.tensorParallelSize, or accelerators with more memory",
                "engine-memory",
                (size.field, "spec.model.dtype", ACCELERATOR_MEMORY, *engine_fields),
            )
            return
    resident = list_trainer_parts(spec, size, offloaded=False, gradients=not spec.rollout.free_cache_engine)
    training = list_trainer_parts(spec, size, offloaded=False)
    phases = [("during training", training, 0.0), ("with engine and trainer", resident, share)]
    for when, parts, engine in phases:
        trainer = sum(part.bytes for part in parts)
        if trainer + engine <= device:
            continue
        terms = [*([Part(f"for vLLM ({UTILIZATION.rsplit('.', 1)[1]})", engine)] if engine else []), *parts]
        free_share = (device - trainer) / device
        can_lower = engine and free_share >= 0.05
        value = str(spec.rollout.gpu_memory_utilization) if engine else group.accelerator.memory
        yield Finding(
            UTILIZATION if engine else ACCELERATOR_MEMORY,
            value,
            f"one device needs {' + '.join(map(str, terms))} = {(trainer + engine) / GIB:.3g} GiB {when}, more than "
            f"its {device / GIB:.3g} GiB ({size.source}, {_format_train_workers(group)})",
            f"use {int(free_share * 20) / 20:g} or less"
            if can_lower
            else "use more accelerators, or training.fsdp.optimizerOffload",
            "accelerator-memory",
            (*involved, *engine_fields, "spec.rollout.freeCacheEngine", UTILIZATION) if engine else involved,
        )
        return


def validate_cpu_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resources.memory of a pod without accelerators must hold the state of the trainer and the engine, and
    rollout.kvCacheSpace."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is not None or group.resources is None:
        return
    model, size = trained
    parts = [
        *list_trainer_parts(spec, size, offloaded=False),
        *list_trainer_parts(spec, size, offloaded=True),
        Part(f"{model.dtype} weights of the engine", BYTES[model.dtype] * size.parameters),
    ]
    if spec.rollout.engine == "vllm":
        parts.append(Part("rollout.kvCacheSpace", spec.rollout.kv_cache_space * GIB))
    yield from _validate_pod_memory(
        spec, group, parts, size, ("spec.rollout.engine", "spec.rollout.kvCacheSpace", "spec.model.dtype", *OFFLOAD[:1])
    )


def validate_offload_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resources.memory must hold the offloaded state of all accelerators of the pod."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or group.resources is None:
        return
    _, size = trained
    count = group.accelerator.count
    parts = [
        Part(f"{part.label} x {count} in the pod", part.bytes * count)
        for part in list_trainer_parts(spec, size, offloaded=True)
    ]
    yield from _validate_pod_memory(spec, group, parts, size, (*OFFLOAD, *REFERENCE[1:]))


def _trained(spec: RLTrainingJobSpec) -> tuple[Model, Size] | None:
    """Return the model and its size; None if the size is unknown or only adapters are trained."""
    size = model_size(spec.model) if spec.model else None
    return (spec.model, size) if spec.model and size and not spec.model.lora else None


def _validate_pod_memory(
    spec: RLTrainingJobSpec, group: WorkerGroup, parts: list[Part], size: Size, involved: tuple[str, ...]
) -> Iterator[Finding]:
    assert group.resources
    needed = sum(part.bytes for part in parts)
    if needed > quantity_value(group.resources.memory):
        yield Finding(
            f"{WORKERS}.resources.memory",
            group.resources.memory,
            f"one pod needs {' + '.join(map(str, parts))} = {needed / GIB:.3g} GiB "
            f"({size.source}, {_format_train_workers(group)})",
            f"use {int(needed / GIB) + 1}Gi or more, or more replicas",
            "pod-memory",
            (size.field, *TRAIN_WORKER_FIELDS, REFERENCE[0], *involved),
        )


def validate_kv_cache(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """kvCacheSpace must hold one sequence of maximum length. Otherwise vLLM does not start."""
    group = training_group(spec)
    per_token = kv_bytes_per_token(spec.model) if spec.model else None
    if per_token is None or spec.data is None or group.accelerator is not None or spec.rollout.engine != "vllm":
        return
    longest = max_sequence_length(spec)
    needed = per_token * longest
    if needed > spec.rollout.kv_cache_space * GIB:
        yield Finding(
            "spec.rollout.kvCacheSpace",
            str(spec.rollout.kv_cache_space),
            f"GiB cannot hold one sequence of {longest} tokens: {per_token:,} bytes per token x {longest} = "
            f"{needed / GIB:.3g} GiB",
            f"use {-(-needed // GIB)}, or reduce the lengths",
            "kv-cache",
            ("spec.model.fromSeed", "spec.model.dtype", *LENGTHS, MODEL_LEN, "spec.rollout.engine"),
        )


def _format_train_workers(group: WorkerGroup) -> str:
    number = count_train_workers(group)
    return f"{number} train worker{'s' * (number > 1)}"


def _suggest_share(needed: float, device: float) -> str | None:
    minimum = int(needed / device * 20 + 1) / 20
    return f"use {minimum:g} or more" if minimum < 1 else None


RULES = (
    validate_accelerator_memory,
    validate_cpu_memory,
    validate_offload_memory,
    validate_kv_cache,
)
