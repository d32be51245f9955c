"""Warnings about values that are valid and unlikely to be meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.frameworks.command.preflight import build_trial
from rlt_api.model import quantity_value
from rlt_api.rules.engine_memory import MAX_UTILIZATION, explain_small_cache
from rlt_api.rules.locations import list_files, list_folders
from rlt_api.rules.model_size import model_size
from rlt_api.rules.storage import describe_missing_volume
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group
from rlt_pod.preflight.expected import NotPossible

MAX_LEARNING_RATE = 1e-3
"""Learning rates of RL on pretrained models are about 1e-6, of LoRA 1e-5 to 1e-4 (verl's and TRL's examples)."""
WHOLE_SOLUTIONS = ("gsm8k", "openai/gsm8k")
"""Data sets on the hub whose questions do not ask for the form "#### NUMBER" of the answer."""


MIN_PARAMETERS_ON_GPUS = 0.45e9
"""Models of 0.5B parameters, with the tolerance of their names."""
MIN_DEADLINE = 300
"""Seconds in which a model of some billion parameters starts on GPUs (estimated)."""


def warn_learning_rate(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A learning rate that destroys a pretrained model in the first steps."""
    rate = spec.training.learning_rate
    if rate > MAX_LEARNING_RATE and spec.model is not None and spec.model.path is not None:
        yield (
            f"spec.training.learningRate: {rate:g}: is much higher than usual for a pretrained model: 1e-6, or 1e-5 to "
            "1e-4 with LoRA"
        )


def warn_utilization(spec: RLTrainingJobSpec) -> Iterator[str]:
    """An engine that leaves almost nothing of the device."""
    share = spec.rollout.gpu_memory_utilization
    if share > MAX_UTILIZATION and any(group.accelerator for group in spec.cluster.workers):
        yield (
            f"spec.rollout.gpuMemoryUtilization: {share:g}: leaves {1 - share:.0%} of the device to NCCL, CUDA and "
            f"other processes, so that the engine may run out of memory; use {MAX_UTILIZATION} or less"
        )
    elif problem := explain_small_cache(spec):
        yield f"spec.rollout.gpuMemoryUtilization: {share:g}: {problem}"


def warn_settings_without_effect(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Settings of preflight, security and framework.prepare that have no effect in this job."""
    if spec.preflight.command and spec.preflight.level != "full":
        yield "spec.preflight.command: given: it is a part of level full; set preflight.level to full"
    if spec.preflight.level == "full" and spec.framework.command and not spec.preflight.command:
        trial = build_trial(spec, spec.framework.command, "/")
        if isinstance(trial, NotPossible):
            yield (
                f"spec.preflight.level: full: {trial.reason[0].lower()}{trial.reason[1:].rstrip('.')}: the stage "
                "training is a warning, and the other stages of level full run; set preflight.command to a short run"
            )
    if spec.framework.prepare and not spec.storage.outlives_pods:
        yield (
            "spec.framework.prepare: given: without a PVC its files exist on the head pod alone, and each new head pod "
            "runs it again; set storage.claimName or storage.storageClassName"
        )
    if spec.security.ptrace and not spec.security.privileged:
        yield (
            f"spec.security.ptrace: true: Kubernetes gives added capabilities to root only, and the pods run as user "
            f"{spec.security.run_as_user}: it has no effect without security.privileged; remove it"
        )


def warn_turns(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Conversations whose answers are never read, and settings of tools or agents without them."""
    multi_turn = spec.rollout.multi_turn
    if multi_turn is None:
        return
    field = "spec.rollout.multiTurn"
    if multi_turn.max_turns == 1 and multi_turn.agent is None:
        source = "tools" if multi_turn.tools else "environment"
        yield (
            f"{field}.maxTurns: 1: the conversation ends after the first turn of the policy, so that it never reads an "
            f"answer of its {source}; use 2 or more"
        )
    calls_tools = multi_turn.tools or multi_turn.agent
    tools_or_server = multi_turn.tools or multi_turn.openenv
    for name, alias, has_effect, what in (
        ("format", "format", calls_tools, "tools or an agent"),
        ("reasoning_parser", "reasoningParser", calls_tools, "tools or an agent"),
        ("max_parallel_calls", "maxParallelCalls", multi_turn.tools, "tools"),
        ("max_tool_response_length", "maxToolResponseLength", tools_or_server, "tools or openenv"),
    ):
        if name in multi_turn.model_fields_set and not has_effect:
            value = getattr(multi_turn, name)
            yield f"{field}.{alias}: {value}: has an effect only with {what}; remove it, or add {what}"


def warn_training_on_cpus(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A job that is meant for GPUs, whose worker group or node pool has none."""
    if not spec.cluster.workers or training_group(spec).accelerator is not None:
        return
    if "gpu_memory_utilization" in spec.rollout.model_fields_set:
        share = spec.rollout.gpu_memory_utilization
        yield f"spec.rollout.gpuMemoryUtilization: {share:g}: {_describe_cpus(spec)}"
    elif problem := explain_large_model_on_cpus(spec):
        yield problem


def explain_large_model_on_cpus(spec: RLTrainingJobSpec) -> str | None:
    """Return the sentence about a model of 0.5B parameters or more that would be trained on CPUs; None for others."""
    size = model_size(spec.model) if spec.model else None
    if not spec.cluster.workers or training_group(spec).accelerator is not None:
        return None
    if size is None or size.parameters < MIN_PARAMETERS_ON_GPUS:
        return None
    return f"{size.field}: {size.source}: {_describe_cpus(spec)}"


def _describe_cpus(spec: RLTrainingJobSpec) -> str:
    pool = training_group(spec).pool
    where = f"pool {pool} has" if pool else "the worker group has"
    fix = "add accelerator, or select a pool with accelerators by cluster.workers[].pool"
    return f"{where} no accelerators, and the job trains on CPUs; {fix}"


def warn_weights(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Rewards that do not count."""
    for index, reward in enumerate(spec.rewards):
        if reward.weight == 0:
            yield f"spec.rewards[{index}].weight: 0: the score has no effect on the training; remove the reward"


def warn_quantized_model(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Weights that are quantized for inference cannot be trained."""
    path = (spec.model.path if spec.model else None) or ""
    if found := re.search(r"[-_](GGUF|AWQ|GPTQ|FP8|NVFP4|MXFP4|bnb-4bit|int4|int8|w4a16|w8a8)\b", path, re.IGNORECASE):
        yield (
            f"spec.model.path: {path}: by its name, the weights are quantized ({found[1]}), and cannot be trained; use "
            "the original model"
        )


def warn_short_deadline(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A deadline that ends before an engine and a model have started."""
    seconds = spec.failure_policy.progress_deadline_seconds
    on_gpus = any(group.accelerator for group in spec.cluster.workers)
    if seconds and seconds < MIN_DEADLINE and on_gpus:
        yield (
            f"spec.failurePolicy.progressDeadlineSeconds: {seconds}: the time until the first step counts, with the "
            f"start of engines and the loading of weights; use {MIN_DEADLINE} or more, or 0"
        )


def warn_few_cpus(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Each accelerator has a train worker and an engine, which are processes."""
    for index, group in enumerate(spec.cluster.workers):
        count = group.accelerator.count if group.accelerator else 0
        if group.resources and quantity_value(group.resources.cpu) < count:
            yield (
                f"spec.cluster.workers[{index}].resources.cpu: {group.resources.cpu}: is less than one CPU for each of "
                f"the {count} accelerators, whose processes wait for each other; use {2 * count} or more"
            )


def warn_paths_outside_volumes(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Models and data that are on no volume of the job must be in the image."""
    model = spec.model
    paths = {
        "spec.model.path": model.path if model else None,
        **dict(list_folders(spec)),
        **dict(list_files(spec)),
        "spec.checkpoint.resumeFromPath": spec.checkpoint.resume_from_path,
        "spec.evaluateOnly.checkpoints": spec.evaluate_only.checkpoints if spec.evaluate_only else None,
    }
    for field, path in paths.items():
        if path and path.startswith("/") and (problem := describe_missing_volume(path, spec)):
            yield f"{field}: {path}: {problem}"


def warn_answer_form(spec: RLTrainingJobSpec) -> Iterator[str]:
    """The strict gsm8k rule needs prompts that ask for "#### NUMBER"."""
    hub = spec.data.hub if spec.data else None
    if hub is None or hub.name.lower() not in WHOLE_SOLUTIONS or (spec.data and spec.data.chat_template):
        return
    for index, reward in enumerate(spec.rewards):
        if reward.name == "gsm8k" and reward.options.get("method", "strict") == "strict":
            yield (
                f"spec.rewards[{index}].name: gsm8k: scores 0 without '#### ' in the response, and the questions of "
                f"{hub.name} do not ask for it; use preset gsm8k, whose prompts do, or name: math"
            )
