"""Lower bounds of the memory of accelerators and pods. Only a job that cannot fit is rejected; the message has the sum.

The trainer's part is in memory_parts.py. The engine keeps its own weights in model.dtype, or quantized, on each device,
divided by its tensor parallel size, and gpuMemoryUtilization of the device; with freeCacheEngine not during the update.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.model import Model
from rlt_api.finding import Finding, use
from rlt_api.model import quantity_value
from rlt_api.rules.layout import TRAIN_WORKER_FIELDS, WORKERS, count_train_workers
from rlt_api.rules.lengths import LENGTHS, MODEL_LEN, max_sequence_length
from rlt_api.rules.memory_parts import (
    GIB,
    Part,
    Phase,
    State,
    engine_dtype,
    engine_weight_bytes,
    list_activations,
    list_gradients,
    list_states,
)
from rlt_api.rules.model_size import Size, kv_bytes_per_token, model_size
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.worker_groups import has_engines, training_group

UTILIZATION = "spec.rollout.gpuMemoryUtilization"
QUANTIZATION = "spec.rollout.quantization"
ACCELERATOR_MEMORY = f"{WORKERS}.accelerator.memory"
STATE = ("spec.training.fsdp.fsdpSize", "spec.training.optimizer")
"""The fields that determine the size of a train worker's state."""
OFFLOAD = tuple(f"spec.training.fsdp.{name}" for name in ("paramOffload", "optimizerOffload"))
REFERENCE = tuple(
    f"spec.{name}"
    for name in (
        *("algorithm.klLossCoef", "algorithm.klInReward", "algorithm.dpo", "training.reference.paramOffload"),
        *("algorithm.distillation.modelPath", "algorithm.distillation.paramOffload"),
    )
)
"""The fields that determine whether the weights of reference and teacher exist, and where."""
MICRO_BATCH = (
    *LENGTHS,
    *(f"spec.model.{name}" for name in ("enableGradientCheckpointing", "useRemovePadding", "useLiger")),
    *(f"spec.training.{name}" for name in ("ppoMicroBatchSizePerDevice", "useDynamicBsz", "ppoMaxTokenLenPerDevice")),
)
"""The fields that determine the activations of a micro-batch."""
ENGINE = tuple(f"spec.rollout.{name}" for name in ("engine", "mode", "tensorParallelSize", "freeCacheEngine"))


def validate_accelerator_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """accelerator.memory must hold the state of the trainer and, in mode colocated, the engine. Otherwise vLLM has no
    memory for its KV cache, or the first step runs out of memory."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or not group.accelerator.memory:
        return
    model, size = trained
    device = quantity_value(group.accelerator.memory)
    colocated = has_engines(spec) and spec.rollout.mode == "colocated" and spec.rollout.engine == "vllm"
    share = spec.rollout.gpu_memory_utilization * device if colocated else 0.0
    if colocated:
        weights = engine_weight_bytes(spec, model, size) / spec.rollout.tensor_parallel_size
        if weights >= share:
            minimum = int(weights / device * 20 + 1) / 20
            yield Finding(
                UTILIZATION,
                str(spec.rollout.gpu_memory_utilization),
                f"of {group.accelerator.memory} is {share / GIB:.3g} GiB, and the engine's "
                f"{engine_dtype(spec, model)} weights need {weights / GIB:.3g} GiB ({size.source}), which leaves "
                "no memory for the KV cache",
                f"use {minimum:g} or more"
                if minimum < 1
                else "use a larger rollout.tensorParallelSize, or accelerators with more memory",
                "engine-memory",
                (size.field, "spec.model.dtype", ACCELERATOR_MEMORY, QUANTIZATION, *ENGINE[:3]),
                use(UTILIZATION, minimum) if minimum < 1 else (),
            )
            return
    involved = (size.field, "spec.model.dtype", ACCELERATOR_MEMORY, *TRAIN_WORKER_FIELDS, *STATE, *OFFLOAD, *REFERENCE)
    states = list_states(spec, model, size)
    passes = [*list_gradients(spec, model, size), *list_activations(spec, model)]
    during_update = 0.0 if spec.rollout.free_cache_engine else share
    sync: list[tuple[Phase, list[Part], float]] = [("sync", _on_device(states, "sync"), share)]
    phases: list[tuple[Phase, list[Part], float]] = [
        ("update", [*_on_device(states, "update"), *passes], during_update),
        *(sync if has_engines(spec) else []),
    ]
    for phase, parts, engine in phases:
        trainer = sum(part.bytes for part in parts)
        if trainer + engine <= device:
            continue
        terms = [*([Part(f"for vLLM ({UTILIZATION.rsplit('.', 1)[1]})", engine)] if engine else []), *parts]
        free_share = (device - trainer) / device
        can_lower = bool(engine) and free_share >= 0.05
        yield Finding(
            UTILIZATION if can_lower else ACCELERATOR_MEMORY,
            str(spec.rollout.gpu_memory_utilization) if can_lower else group.accelerator.memory,
            f"one device needs {' + '.join(map(str, terms))} = {(trainer + engine) / GIB:.3g} GiB during the {phase}, "
            f"more than its {device / GIB:.3g} GiB ({size.source}, {_format_train_workers(group)})",
            f"use {int(free_share * 20) / 20:g} or less" if can_lower else _suggest_fix(spec, phase, parts),
            "accelerator-memory",
            (*involved, *(MICRO_BATCH if phase == "update" else ()), *((*ENGINE, UTILIZATION) if engine else ())),
            use(UTILIZATION, int(free_share * 20) / 20) if can_lower else (),
        )
        return


def _on_device(states: list[State], phase: Phase) -> list[Part]:
    return [state.part for state in states if phase in state.phases or not state.offloaded]


def _suggest_fix(spec: RLTrainingJobSpec, phase: Phase, parts: list[Part]) -> str:
    """Return the fix for a trainer that does not fit alone: what reduces its largest part."""
    largest = max(parts, key=lambda part: part.bytes).label
    if phase == "sync" and "moments" in largest:
        return "use training.fsdp.optimizerOffload: true, or more accelerators"
    if phase == "update" and largest.startswith("activations"):
        checkpointing = spec.model is not None and spec.model.enable_gradient_checkpointing
        return f"use {'' if checkpointing else 'model.enableGradientCheckpointing: true, or '}smaller micro-batches"
    return "use more accelerators, or accelerators with more memory"


def validate_cpu_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resources.memory of a pod without accelerators must hold the state of the trainer and the engine, and
    rollout.kvCacheSpace."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is not None or group.resources is None:
        return
    model, size = trained
    parts = [
        *(state.part for state in list_states(spec, model, size)),
        *list_gradients(spec, model, size),
    ]
    if has_engines(spec):
        weights = engine_weight_bytes(spec, model, size)
        parts.append(Part(f"{engine_dtype(spec, model)} weights of the engine", weights))
    if has_engines(spec) and spec.rollout.engine == "vllm":
        parts.append(Part("rollout.kvCacheSpace", spec.rollout.kv_cache_space * GIB))
    yield from _validate_pod_memory(
        spec,
        group,
        parts,
        size,
        ("spec.rollout.engine", "spec.rollout.kvCacheSpace", "spec.model.dtype", QUANTIZATION, *STATE),
    )


def validate_offload_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resources.memory must hold the offloaded state of all accelerators of the pod."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or group.resources is None:
        return
    model, size = trained
    count = group.accelerator.count
    parts = [
        Part(f"{state.part.label} x {count} in the pod", state.part.bytes * count)
        for state in list_states(spec, model, size)
        if state.offloaded
    ]
    yield from _validate_pod_memory(spec, group, parts, size, (*STATE, *OFFLOAD, *REFERENCE[1:]))


def _trained(spec: RLTrainingJobSpec) -> tuple[Model, Size] | None:
    """Return the model and its size; None if the size is unknown."""
    size = model_size(spec.model) if spec.model else None
    return (spec.model, size) if spec.model and size else None


def explain_missing_memory_check(spec: RLTrainingJobSpec) -> tuple[str, str] | None:
    """Return the field without which the memory of accelerators was not validated, and the fix; None if it was."""
    group = training_group(spec)
    if group.accelerator is None or spec.model is None:
        return None
    if not group.accelerator.memory:
        return ACCELERATOR_MEMORY, "give the memory of one accelerator, such as 80Gi, or put it into the node pool"
    if _trained(spec) is None:
        return "spec.model.parameters", "give the number of parameters, such as 7B, which the name does not contain"
    return None


def explain_long_micro_batch(spec: RLTrainingJobSpec) -> str | None:
    """Return the sum for packed micro-batches of sequences of maximum length, if it does not fit; None if it does.

    Such a job is valid, because most responses are shorter.
    """
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or not group.accelerator.memory:
        return None
    model, size = trained
    passes = [*list_gradients(spec, model, size), *list_activations(spec, model, all_longest=True)]
    parts = [*_on_device(list_states(spec, model, size), "update"), *passes]
    needed = sum(part.bytes for part in parts)
    if needed <= quantity_value(group.accelerator.memory):
        return None
    return f"{' + '.join(map(str, parts))} = {needed / GIB:.3g} GiB of {group.accelerator.memory}"


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
            use(f"{WORKERS}.resources.memory", f"{int(needed / GIB) + 1}Gi"),
        )


def validate_kv_cache(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """kvCacheSpace must hold one sequence of maximum length. Otherwise vLLM does not start."""
    group = training_group(spec)
    per_token = kv_bytes_per_token(spec.model) if spec.model else None
    on_cpu = group.accelerator is None and spec.rollout.engine == "vllm" and has_engines(spec)
    if per_token is None or spec.data is None or not on_cpu:
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
            use("spec.rollout.kvCacheSpace", -(-needed // GIB)),
        )


def _format_train_workers(group: WorkerGroup) -> str:
    number = count_train_workers(group)
    return f"{number} train worker{'s' * (number > 1)}"


RULES = (
    validate_accelerator_memory,
    validate_cpu_memory,
    validate_offload_memory,
    validate_kv_cache,
)
