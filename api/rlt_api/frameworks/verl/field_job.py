"""A command of verl as a job with framework verl: its arguments as fields, for the rules over memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import JsonValue, ValidationError

from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import COMMAND, DEVICES, NODES, read_verl_number
from rlt_api.frameworks.mapping import load_mapping
from rlt_api.frameworks.verl.parallel import read_engine, read_sizes
from rlt_api.frameworks.verl.sizes import DYNAMIC
from rlt_api.model import quantity_value
from rlt_api.rules.engine_memory import validate_engine_memory
from rlt_api.rules.memory import validate_accelerator_memory, validate_offload_memory
from rlt_api.rules.memory_parts import GIB
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
PATH = f"{MODEL}.path"
FIELD = re.compile(r"\b(?:spec\.)?(?:model|training|rollout|algorithm|data)\.[A-Za-z]{1,40}(?:\.[A-Za-z]{1,40}){0,4}")
"""The path of a field in a message, which the key of verl replaces."""
MEMORY = "spec.cluster.workers[0].resources.memory"
RULES_OF_FIELDS: tuple[Callable[[RLTrainingJobSpec], Iterator[Finding]], ...] = (
    validate_engine_memory,
    validate_accelerator_memory,
    validate_offload_memory,
)


def read_field_job(program: Program, spec: RLTrainingJobSpec) -> RLTrainingJobSpec | None:
    """Return the job that the arguments describe, on the devices that they name. None for another engine than FSDP, for
    separate engines, and if a size is unknown."""
    if PATH not in program.values or program.own_config or program.separate or read_engine(program.values) != "dp":
        return None
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    first = spec.cluster.workers[0] if spec.cluster.workers else None
    if not (nodes and devices and first and first.accelerator) or f"{ROLLOUT}.nnodes" in program.given:
        return None
    group = first.to_json()
    group |= {"replicas": nodes, "accelerator": {**group["accelerator"], "count": devices}, "podTemplate": {}}
    try:
        return RLTrainingJobSpec.model_validate(
            {**_list_blocks(program), "framework": {"type": "verl"}, "cluster": {"workers": [group]}}
        )
    except ValidationError:  # a value out of bounds, which another rule names
        return None


def _list_blocks(program: Program) -> dict[str, Any]:
    def read(key: str) -> JsonValue:
        return program.values.get(key) if key in program.given else defaults.get(key)

    defaults = {setting.key: setting.default for setting in load_mapping().verl}
    batch = read("data.train_batch_size")
    rank = read(f"{MODEL}.lora_rank")
    fsdp_size = read(f"{ACTOR}.fsdp_config.fsdp_size")
    is_dynamic = read(DYNAMIC) is True
    has_critic = read("algorithm.adv_estimator") == "gae" and read("critic.model.path") == read(PATH)
    coefficient = read(f"{ACTOR}.kl_loss_coef") if read(f"{ACTOR}.use_kl_loss") is True else 0
    sizes = read_sizes(program.values)
    return {
        "model": {
            "path": read(PATH),
            "dtype": dtype if (dtype := read(f"{ROLLOUT}.dtype")) == "float32" else "bfloat16",
            "lora": {"rank": rank} if isinstance(rank, int) and rank > 0 else None,
            "enableGradientCheckpointing": read(f"{MODEL}.enable_gradient_checkpointing"),
            "useRemovePadding": read(f"{MODEL}.use_remove_padding"),
            "useLiger": read(f"{MODEL}.use_liger"),
        },
        "data": {
            "files": ["/data.parquet"],
            "maxPromptLength": read("data.max_prompt_length"),
            "maxResponseLength": read("data.max_response_length"),
        },
        "algorithm": {
            "advEstimator": "grpo",
            "klLossCoef": coefficient,
            "klInReward": {} if read("algorithm.use_kl_in_reward") is True else None,
            "critic": {} if has_critic else None,
        },
        "training": {
            "totalSteps": 1,
            "trainBatchSize": batch,
            "ppoMiniBatchSize": read(f"{ACTOR}.ppo_mini_batch_size"),
            "ppoMicroBatchSizePerDevice": read(f"{ACTOR}.ppo_micro_batch_size_per_gpu") or 1,
            "useDynamicBsz": is_dynamic,
            "ppoMaxTokenLenPerDevice": read(f"{ACTOR}.ppo_max_token_len_per_gpu") if is_dynamic else None,
            "contextParallelSize": max(sizes.values(), default=1),
            "fsdp": {
                "fsdpSize": fsdp_size if isinstance(fsdp_size, int) and fsdp_size > 0 else None,
                "paramOffload": read(f"{ACTOR}.fsdp_config.param_offload"),
                "optimizerOffload": read(f"{ACTOR}.fsdp_config.optimizer_offload"),
            },
            "reference": {"paramOffload": read("actor_rollout_ref.ref.fsdp_config.param_offload")},
        },
        "rollout": {
            "responsesPerPrompt": read(f"{ROLLOUT}.n"),
            "tensorParallelSize": read(f"{ROLLOUT}.tensor_model_parallel_size"),
            "gpuMemoryUtilization": read(f"{ROLLOUT}.gpu_memory_utilization"),
            "freeCacheEngine": read(f"{ROLLOUT}.free_cache_engine") is not False,
        },
    }


def validate_command_memory(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """verl's arguments in a command must fit into the memory of the accelerators and of the pods, as the fields of a
    job with framework verl must, if the model's name contains its size."""
    job = read_field_job(program, spec)
    if job is None:
        return
    for rule in (*RULES_OF_FIELDS, _find_small_host):
        for finding in rule(job):
            yield _translate(finding, program)


def validate_verl_host_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With framework.type verl, resources.memory must hold the weights in float32: one process loads the whole model
    before FSDP shards it (verl/workers/engine/fsdp/transformer_impl.py)."""
    overrides = " ".join(spec.framework.overrides)
    if "model_engine=" not in overrides and "model_dtype=" not in overrides:
        yield from _find_small_host(spec)


def _find_small_host(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    size = model_size(spec.model) if spec.model else None
    resources = spec.cluster.workers[0].resources if spec.cluster.workers else None
    if size is None or resources is None:
        return
    needed = 4 * size.parameters
    if needed > quantity_value(resources.memory):
        message = (
            f"of host memory is less than the {needed / GIB:.3g} GiB of float32 weights, which one process loads "
            f"before they are sharded ({size.source})"
        )
        minimum = f"{int(needed / GIB) + 1}Gi"
        involved = (size.field, "spec.framework.type")
        fix = f"use {minimum} or more"
        edits = ({MEMORY: minimum},)
        yield Finding(MEMORY, resources.memory, message, fix, rule="host-memory", involved=involved, edits=edits)


def _translate(finding: Finding, program: Program) -> Finding:
    """Name the argument instead of the field, and verl's keys in the message and the fix."""
    involved = tuple(each for each in finding.involved if each.startswith("spec.cluster"))
    message = FIELD.sub(_replace_field, finding.message)
    fix = re.sub(r"\b(\w{1,40}\.[\w.]{1,120}): (?=\S)", r"\1=", FIELD.sub(_replace_field, finding.fix))
    fix = fix.replace("gpuMemoryUtilization ", f"{ROLLOUT}.gpu_memory_utilization=")
    changed = replace(finding, message=message, fix=fix, involved=(*involved, "spec.framework.type"))
    key = _find_key(finding.field)
    if key is None:
        is_own = all(field.startswith("spec.cluster") for edit in finding.edits for field in edit)
        return replace(changed, edits=finding.edits if is_own else ())
    argument = program.given.get(key)
    if argument is None:
        return replace(changed, field=COMMAND, value=f"{key}={finding.value}, verl's default", edits=())
    value = printable(f"{argument.key}={argument.value}")
    return replace(changed, field=f"{COMMAND}[{argument.index}]", value=value, edits=())


def _find_key(field: str) -> str | None:
    settings = load_mapping().verl
    return next((each.key for each in settings if each.in_config and not each.is_group and field in each.fields), None)


def _replace_field(found: re.Match[str]) -> str:
    return _find_key(f"spec.{found[0].removeprefix('spec.')}") or found[0]


RULES = (validate_verl_host_memory,)
