"""Whether what must be in memory at one time can be: only what cannot fit is refused, and the message shows the sum.

Bytes of a parameter: the trainer keeps float32 weights (4), their gradients (4) and AdamW's two moments (8), and with a
KL term the reference's float32 weights (4), all sharded over the ranks that share a copy (FSDP2, arXiv 1910.02054); the
engine keeps its own weights in model.dtype, whole on each device but for its tensor parallel size. Activations, buffers
and the CUDA context come on top and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.model import Model
from rlt_api.finding import Finding
from rlt_api.model import quantity_value
from rlt_api.rules.layout import RANKS, WORKERS, ranks, training_group
from rlt_api.rules.lengths import LENGTHS, MODEL_LEN, longest_sequence
from rlt_api.rules.model_size import BYTES, Size, kv_bytes_per_token, model_size
from rlt_api.spec import RLTrainingJobSpec

GIB = 2**30
UTILIZATION = "spec.rollout.gpuMemoryUtilization"
ACCELERATOR_MEMORY = f"{WORKERS}.accelerator.memory"
OFFLOAD = tuple(f"spec.training.fsdp.{name}" for name in ("fsdpSize", "paramOffload", "optimizerOffload"))
REFERENCE = ("spec.algorithm.klLossCoef", "spec.training.reference.paramOffload")
"""What decides whether the frozen weights are there, and where."""


@dataclass(frozen=True)
class Part:
    """A term of the sum."""

    said: str
    bytes: float

    def __str__(self) -> str:
        return f"{self.bytes / GIB:.3g} GiB {self.said}"


def trainer_parts(spec: RLTrainingJobSpec, size: Size, *, offloaded: bool, gradients: bool = True) -> list[Part]:
    """What one rank holds on its device, or with `offloaded` what it keeps in the CPU's memory instead."""
    fsdp, reference = spec.training.fsdp, spec.training.reference
    shards = (fsdp.fsdp_size if fsdp else None) or ranks(training_group(spec))
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
    return [part for aside, part in parts if aside is offloaded]


def accelerators_hold_trainer_and_engine(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """vLLM: no available memory for the cache blocks; or the trainer runs out of memory at its first step."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or not group.accelerator.memory:
        return
    model, size = trained
    device = quantity_value(group.accelerator.memory)
    colocated = spec.rollout.mode == "colocated" and spec.rollout.engine == "vllm"
    share = spec.rollout.gpu_memory_utilization * device if colocated else 0.0
    involved = (size.field, "spec.model.dtype", ACCELERATOR_MEMORY, *RANKS, *OFFLOAD, *REFERENCE)
    engine_fields = ("spec.rollout.engine", "spec.rollout.mode", "spec.rollout.tensorParallelSize")
    if colocated:
        weights = BYTES[model.dtype] * size.parameters / spec.rollout.tensor_parallel_size
        if weights >= share:
            yield Finding(
                UTILIZATION,
                str(spec.rollout.gpu_memory_utilization),
                f"of {group.accelerator.memory} is {share / GIB:.3g} GiB, and the engine's {model.dtype} weights "
                f"take {weights / GIB:.3g} GiB ({size.said}): no memory for the KV cache",
                _share(weights, device) or "use a larger rollout.tensorParallelSize, or accelerators with more memory",
                "engine-memory",
                (size.field, "spec.model.dtype", ACCELERATOR_MEMORY, *engine_fields),
            )
            return
    resident = trainer_parts(spec, size, offloaded=False, gradients=not spec.rollout.free_cache_engine)
    training = trainer_parts(spec, size, offloaded=False)
    phases = [("while it trains", training, 0.0), ("at one time", resident, share)]
    for when, parts, engine in phases:
        trainer = sum(part.bytes for part in parts)
        if trainer + engine <= device:
            continue
        sum_of = [*([Part(f"for vLLM ({UTILIZATION.rsplit('.', 1)[1]})", engine)] if engine else []), *parts]
        room = (device - trainer) / device
        lower = engine and room >= 0.05
        value = str(spec.rollout.gpu_memory_utilization) if engine else group.accelerator.memory
        yield Finding(
            UTILIZATION if engine else ACCELERATOR_MEMORY,
            value,
            f"one device needs {' + '.join(map(str, sum_of))} = {(trainer + engine) / GIB:.3g} GiB {when}, more than "
            f"its {device / GIB:.3g} GiB ({size.said}, {_ranks(group)})",
            f"use {int(room * 20) / 20:g} or less" if lower else "use more ranks, or training.fsdp.optimizerOffload",
            "accelerator-memory",
            (*involved, *engine_fields, "spec.rollout.freeCacheEngine", UTILIZATION) if engine else involved,
        )
        return


def processors_hold_trainer_and_engine(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Without accelerators all of it is in the pod's memory, the KV cache being rollout.kvCacheSpace."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is not None or group.resources is None:
        return
    model, size = trained
    parts = [
        *trainer_parts(spec, size, offloaded=False),
        *trainer_parts(spec, size, offloaded=True),
        Part(f"{model.dtype} weights of the engine", BYTES[model.dtype] * size.parameters),
    ]
    if spec.rollout.engine == "vllm":
        parts.append(Part("rollout.kvCacheSpace", spec.rollout.kv_cache_space * GIB))
    yield from _pod_memory(
        spec, group, parts, size, ("spec.rollout.engine", "spec.rollout.kvCacheSpace", "spec.model.dtype", *OFFLOAD[:1])
    )


def offloaded_state_fits_the_pod(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """What waits in the CPU's memory is there for every accelerator of the pod."""
    group, trained = training_group(spec), _trained(spec)
    if trained is None or group.accelerator is None or group.resources is None:
        return
    _, size = trained
    count = group.accelerator.count
    parts = [
        Part(f"{part.said} x {count} in the pod", part.bytes * count)
        for part in trainer_parts(spec, size, offloaded=True)
    ]
    yield from _pod_memory(spec, group, parts, size, (*OFFLOAD, *REFERENCE[1:]))


def _trained(spec: RLTrainingJobSpec) -> tuple[Model, Size] | None:
    """The model and its size; None where the size is not known, or adapters alone are trained."""
    size = model_size(spec.model) if spec.model else None
    return (spec.model, size) if spec.model and size and not spec.model.lora else None


def _pod_memory(
    spec: RLTrainingJobSpec, group: WorkerGroup, parts: list[Part], size: Size, involved: tuple[str, ...]
) -> Iterator[Finding]:
    assert group.resources
    needed = sum(part.bytes for part in parts)
    if needed > quantity_value(group.resources.memory):
        yield Finding(
            f"{WORKERS}.resources.memory",
            group.resources.memory,
            f"one pod needs {' + '.join(map(str, parts))} = {needed / GIB:.3g} GiB ({size.said}, {_ranks(group)})",
            f"use {int(needed / GIB) + 1}Gi or more, or more ranks",
            "pod-memory",
            (size.field, *RANKS, REFERENCE[0], *involved),
        )


def cache_holds_a_response(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """vLLM refuses to start where the KV cache is smaller than one sequence of the greatest length."""
    group = training_group(spec)
    per_token = kv_bytes_per_token(spec.model) if spec.model else None
    if per_token is None or spec.data is None or group.accelerator is not None or spec.rollout.engine != "vllm":
        return
    longest = longest_sequence(spec)
    needed = per_token * longest
    if needed > spec.rollout.kv_cache_space * GIB:
        yield Finding(
            "spec.rollout.kvCacheSpace",
            str(spec.rollout.kv_cache_space),
            f"GiB of KV cache hold no sequence of {longest} tokens: {per_token:,} bytes a token x {longest} = "
            f"{needed / GIB:.3g} GiB",
            f"use {-(-needed // GIB)}, or shorter lengths",
            "kv-cache",
            ("spec.model.fromSeed", "spec.model.dtype", *LENGTHS, MODEL_LEN, "spec.rollout.engine"),
        )


def _ranks(group: WorkerGroup) -> str:
    number = ranks(group)
    return f"{number} rank{'s' * (number > 1)}"


def _share(needed: float, device: float) -> str | None:
    least = int(needed / device * 20 + 1) / 20
    return f"use {least:g} or more" if least < 1 else None


RULES = (
    accelerators_hold_trainer_and_engine,
    processors_hold_trainer_and_engine,
    offloaded_state_fits_the_pod,
    cache_holds_a_response,
)
