"""Memory of accelerators and pods. Only a job that cannot fit is rejected; the message has the sum.

What a train worker holds is in memory_parts.py, and what a device holds with the engine in device_memory.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.findings.finding import Edit, Finding, use
from rlt_api.findings.kinds import replaceable
from rlt_api.model import quantity_value
from rlt_api.rules.device_memory import Moment, describe_update, engine_share, list_moments
from rlt_api.rules.engine_memory import QUANTIZATION, UTILIZATION, find_engine_problem, read_trained
from rlt_api.rules.layout import TRAIN_WORKER_FIELDS, WORKERS, count_train_workers
from rlt_api.rules.lengths import LENGTHS, MODEL_LEN, max_sequence_length
from rlt_api.rules.memory_parts import (
    ACTIVATIONS,
    GIB,
    Part,
    count_longest_tokens,
    count_micro_batch_tokens,
    engine_dtype,
    engine_weight_bytes,
    list_gradients,
    list_states,
)
from rlt_api.rules.model_size import Size, kv_bytes_per_token
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines, training_group

KV_CACHE_SPACE = "spec.rollout.kvCacheSpace"
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
TOKENS = MICRO_BATCH[-1]
ENGINE = tuple(f"spec.rollout.{name}" for name in ("engine", "mode", "tensorParallelSize", "freeCacheEngine"))


def validate_accelerator_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """accelerator.memory must hold the state of the trainer, the buffers of an update and of a weight sync and, in mode
    colocated, the engine, with a margin for the processes. Otherwise vLLM has no memory for its KV cache, or the first
    step runs out of memory."""
    group = training_group(spec)
    trained = read_trained(spec)
    if trained is None or group.accelerator is None or not group.accelerator.memory:
        return
    model, size = trained
    memory = group.accelerator.memory
    utilization = str(spec.rollout.gpu_memory_utilization)
    device = quantity_value(memory)
    share = engine_share(spec, device)
    weights = engine_weight_bytes(spec, model, size) / spec.rollout.tensor_parallel_size if share else 0.0
    involved: tuple[str, ...] = (size.field, "spec.model.dtype", ACCELERATOR_MEMORY)
    edits: tuple[Edit, ...]
    if find_engine_problem(spec):
        return
    for moment in list_moments(spec, model, size, device):
        if moment.bytes <= device:
            continue
        message = (
            f"one device needs {' + '.join(map(str, moment.parts))} = {moment.bytes / GIB:.3g} GiB during the "
            f"{moment.phase}, more than its {device / GIB:.3g} GiB ({size.source}, {_format_train_workers(group)})"
        )
        involved = (*involved, *TRAIN_WORKER_FIELDS, *STATE, *OFFLOAD, *REFERENCE)
        involved += MICRO_BATCH if moment.phase == "update" else ()
        involved += (*ENGINE, UTILIZATION) if moment.engine else ()
        field = ACCELERATOR_MEMORY
        value = memory
        fix, edits = _suggest_fix(spec, moment, device)
        lower = int((device - sum(part.bytes for part in moment.trainer)) / device * 20) / 20
        if moment.engine is not None and moment.engine == share and lower * device > weights:
            field = UTILIZATION
            value = utilization
            fix = f"use {lower:g} or less"
            edits = use(UTILIZATION, lower)
        yield Finding(field, value, message, fix, rule="accelerator-memory", involved=involved, edits=edits)
        return


def _suggest_fix(spec: RLTrainingJobSpec, moment: Moment, device: float) -> tuple[str, tuple[Edit, ...]]:
    """Return the fix for a trainer that does not fit alone: fewer tokens, or what reduces its largest part."""
    if moment.phase == "update" and (tokens := _find_micro_batch_tokens(spec, moment, device)):
        return f"use training.ppoMaxTokenLenPerDevice: {tokens} or less", use(TOKENS, tokens)
    largest = max(moment.trainer, key=lambda part: part.bytes).label
    if moment.phase == "sync" and "moments" in largest:
        return "use training.fsdp.optimizerOffload: true, or more accelerators", ()
    if moment.phase == "update" and largest.startswith(ACTIVATIONS):
        checkpointing = spec.model is not None and spec.model.enable_gradient_checkpointing
        fix = "" if checkpointing else "model.enableGradientCheckpointing: true, or "
        is_one_row = spec.training.use_dynamic_bsz or (spec.model is not None and spec.model.use_remove_padding)
        return f"use {fix}{'a larger training.contextParallelSize' if is_one_row else 'smaller micro-batches'}", ()
    return "use more accelerators, or accelerators with more memory", ()


def _find_micro_batch_tokens(spec: RLTrainingJobSpec, moment: Moment, device: float) -> int | None:
    """Return the tokens of a micro-batch that fits; None if micro-batches are not filled by tokens, or none fits.

    The other parts do not shrink with the tokens.
    """
    tokens = count_micro_batch_tokens(spec)
    activations = next((part.bytes for part in moment.trainer if part.label.startswith(ACTIVATIONS)), 0.0)
    if not spec.training.use_dynamic_bsz or not tokens or not activations:
        return None
    fitting = int(tokens * (1 - (moment.bytes - device) / activations)) // 1024 * 1024
    return fitting if fitting >= count_longest_tokens(spec) else None


def validate_cpu_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resources.memory of a pod without accelerators must hold the state of the trainer and the engine, and
    rollout.kvCacheSpace."""
    group = training_group(spec)
    trained = read_trained(spec)
    if trained is None or group.accelerator is not None or group.resources is None:
        return
    model, size = trained
    parts = [state.part for state in list_states(spec, model, size)]
    parts += list_gradients(spec, model, size)
    if has_engines(spec):
        weights = engine_weight_bytes(spec, model, size)
        parts.append(Part(f"{engine_dtype(spec, model)} weights of the engine", weights))
    if has_engines(spec) and spec.rollout.engine == "vllm":
        parts.append(Part("rollout.kvCacheSpace", spec.rollout.kv_cache_space * GIB))
    involved = ("spec.rollout.engine", KV_CACHE_SPACE, "spec.model.dtype", QUANTIZATION, *STATE)
    yield from _validate_pod_memory(spec, group, parts, size, involved)


def validate_offload_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resources.memory must hold the offloaded state of all the pod's accelerators."""
    group = training_group(spec)
    trained = read_trained(spec)
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


def explain_missing_memory_check(spec: RLTrainingJobSpec) -> tuple[str, str] | None:
    """Return the field without which the memory of accelerators was not validated, and the fix; None if it was."""
    group = training_group(spec)
    if group.accelerator is None or spec.model is None:
        return None
    if not group.accelerator.memory:
        return ACCELERATOR_MEMORY, "give the memory of one accelerator, such as 80Gi, or put it into the node pool"
    if read_trained(spec) is None:
        return "spec.model.parameters", "give the number of parameters, such as 7B, which the name does not contain"
    return None


def explain_long_micro_batch(spec: RLTrainingJobSpec) -> str | None:
    """Return the sum for packed micro-batches with responses of maximum length, if it does not fit; None if it does.

    Such a job is valid, because most responses may be shorter. Micro-batches of tokens have a limit, which
    validate_accelerator_memory counts.
    """
    group = training_group(spec)
    trained = read_trained(spec)
    if trained is None or group.accelerator is None or not group.accelerator.memory:
        return None
    device = quantity_value(group.accelerator.memory)
    update = describe_update(spec, *trained, device, all_longest=True)
    if update.bytes <= device:
        return None
    return f"{' + '.join(map(str, update.parts))} = {update.bytes / GIB:.3g} GiB of {group.accelerator.memory}"


def _validate_pod_memory(
    spec: RLTrainingJobSpec, group: WorkerGroup, parts: list[Part], size: Size, involved: tuple[str, ...]
) -> Iterator[Finding]:
    assert group.resources
    needed = sum(part.bytes for part in parts)
    if needed > quantity_value(group.resources.memory):
        field = f"{WORKERS}.resources.memory"
        message = (
            f"one pod needs {' + '.join(map(str, parts))} = {needed / GIB:.3g} GiB "
            f"({size.source}, {_format_train_workers(group)})"
        )
        minimum = f"{int(needed / GIB) + 1}Gi"
        fix = f"use {minimum} or more, or more replicas"
        involved = (size.field, *TRAIN_WORKER_FIELDS, REFERENCE[0], *involved)
        edits = use(field, minimum)
        yield Finding(field, group.resources.memory, message, fix, rule="pod-memory", involved=involved, edits=edits)


def validate_kv_cache(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """kvCacheSpace must hold one sequence of maximum length. Otherwise vLLM does not start."""
    group = training_group(spec)
    per_token = kv_bytes_per_token(spec.model) if spec.model else None
    on_cpu = group.accelerator is None and spec.rollout.engine == "vllm" and has_engines(spec)
    if per_token is None or spec.data is None or not on_cpu:
        return
    space = spec.rollout.kv_cache_space
    longest = max_sequence_length(spec)
    needed = per_token * longest
    if needed > space * GIB:
        message = (
            f"GiB cannot hold one sequence of {longest} tokens: {per_token:,} bytes per token x {longest} = "
            f"{needed / GIB:.3g} GiB"
        )
        involved = ("spec.model.fromSeed", "spec.model.dtype", *LENGTHS, MODEL_LEN, "spec.rollout.engine")
        instead = "reduce the lengths"
        minimum = -(-needed // GIB)
        yield replaceable(KV_CACHE_SPACE, space, message, minimum, instead=instead, rule="kv-cache", involved=involved)


def _format_train_workers(group: WorkerGroup) -> str:
    number = count_train_workers(group)
    return f"{number} train worker{'s' * (number > 1)}"


TRAINING_RULES = (validate_accelerator_memory, validate_cpu_memory, validate_offload_memory)
RULES = (*TRAINING_RULES, validate_kv_cache)
