"""Batches of verl, ROLL and OpenRLHF: each by its own rule, and verl by the same one as a command."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import merged
from openrlhf_jobs import OPENRLHF
from roll_jobs import ROLL
from verl_jobs import RUN, VERL

from rlt_api.frameworks.verl.settings import build_arguments
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

ACTOR = "actor_rollout_ref.actor"
TRAIN = "actor_train"
STRATEGY = f"{TRAIN}.strategy_args"


def pods(replicas: int, count: int = 8) -> dict[str, Any]:
    group = VERL["cluster"]["workers"][0]
    resources = {"cpu": "96", "memory": "1800Gi", "sharedMemory": "256Gi"}
    accelerator = {**group["accelerator"], "count": count}
    return {"cluster.workers": [{"replicas": replicas, "resources": resources, "accelerator": accelerator}]}


def sizes(batch: int, mini: int, responses: int, replicas: int, count: int = 8) -> dict[str, Any]:
    training = {"trainBatchSize": batch, "ppoMiniBatchSize": mini}
    return {"training": training, "rollout.responsesPerPrompt": responses, **pods(replicas, count)}


def megatron(tensor: int, pipeline: int, context: int = 1) -> dict[str, Any]:
    parts = {"tensor_model": tensor, "pipeline_model": pipeline, "context": context}
    keys = [f"{ACTOR}.megatron.{name}_parallel_size={size}" for name, size in parts.items()]
    return {"framework.overrides": ["model_engine=megatron", *keys]}


def roll_layout(training: str, inference: str, tensor: int = 1, pipeline: int = 1) -> dict[str, Any]:
    return {
        "framework.overrides": [
            f"{STRATEGY}.strategy_name=megatron_train",
            f"{STRATEGY}.strategy_config.tensor_model_parallel_size={tensor}",
            f"{STRATEGY}.strategy_config.pipeline_model_parallel_size={pipeline}",
            f"{TRAIN}.device_mapping={training}",
            f"actor_infer.device_mapping={inference}",
        ]
    }


PUBLISHED_VERL: dict[str, dict[str, Any]] = {
    "grpo-7b-one-node": sizes(1024, 256, 5, 1),
    "small-mini-batch-of-many-responses": sizes(64, 16, 8, 4),
    "dapo-16-nodes": sizes(512, 32, 16, 16),
    "dapo-of-one-prompt-for-eight-devices": sizes(512, 16, 16, 4),
    "ulysses": {**sizes(512, 32, 16, 4), "training.contextParallelSize": 4, "model.useRemovePadding": True},
    "megatron-30b-a3b": {**sizes(128, 32, 8, 4), **megatron(4, 1)},
    "megatron-128-devices": {**sizes(256, 32, 4, 16), **megatron(4, 2)},
    "megatron-context": {**sizes(64, 4, 2, 4), **megatron(2, 1, 4)},
    "megatron-671b": {**sizes(512, 128, 16, 12), **megatron(1, 12)},
}
"""Sizes of verl's published launch scripts."""
PUBLISHED_ROLL: dict[str, dict[str, Any]] = {
    "sglang-two-by-two-on-four": {**sizes(64, 4, 8, 1), **roll_layout("list(range(0,4))", "list(range(0,8))", 2, 2)},
    "separate-roles-on-24": {
        **sizes(64, 16, 8, 3),
        **roll_layout("list(range(0,8))", "list(range(8,16))", 2),
        "algorithm.klLossCoef": 0,
    },
    "fsdp-7b": sizes(64, 32, 8, 1),
    "agentic-sizes": sizes(32, 4, 16, 1),
}


@pytest.mark.parametrize("name", PUBLISHED_VERL)
def test_published_sizes_of_verl_are_valid(name: str) -> None:
    assert [str(each) for each in validate_job("sum", merged(VERL, PUBLISHED_VERL[name])).findings] == []


@pytest.mark.parametrize("name", PUBLISHED_ROLL)
def test_published_sizes_of_roll_are_valid(name: str) -> None:
    assert [str(each) for each in validate_job("sum", merged(ROLL, PUBLISHED_ROLL[name])).findings] == []


def test_small_mini_batches_of_openrlhf_are_valid() -> None:
    changes = {**sizes(64, 16, 8, 4), "training.totalEpochs": 2, "training.totalSteps": None}
    assert [str(each) for each in validate_job("sum", merged(OPENRLHF, changes)).findings] == []


WRONG_VERL: dict[str, dict[str, Any]] = {
    "mini-batch-of-eight-responses": sizes(64, 2, 4, 2),
    "step-of-fewer-responses": sizes(4, 4, 2, 2),
    "megatron-mini-batch": {**sizes(64, 2, 2, 16), **megatron(4, 2)},
    "mini-batch-of-all": sizes(20, 20, 2, 2),
}


@pytest.mark.parametrize("name", [*PUBLISHED_VERL, *WRONG_VERL])
def test_a_job_of_verl_and_its_command_agree(name: str) -> None:
    """The command line of framework.type verl, given as a command, is valid if the job is."""
    given = add_accelerator_defaults(merged(VERL, {**PUBLISHED_VERL, **WRONG_VERL}[name]))
    spec = RLTrainingJobSpec.model_validate(given)
    command = {
        "framework": {"type": "command", "command": build_arguments(spec, RUN)},
        "cluster": given["cluster"],
        "storage": given["storage"],
    }
    as_job = [each for each in validate_job("sum", given).findings if each.rule == "batch-divisibility"]
    as_command = validate_job("sum", command).findings
    assert bool(as_job) == bool(as_command) == (name in WRONG_VERL)
    if as_job:
        assert as_job[0].message == as_command[0].message
    else:
        found = list(find_warnings(RLTrainingJobSpec.model_validate(command)))
        assert [each for each in found if "batch" in each] == []


@pytest.mark.parametrize("name", WRONG_VERL)
def test_the_fix_resolves_the_finding(name: str) -> None:
    given = merged(VERL, WRONG_VERL[name])
    (found,) = validate_job("sum", given).findings
    for edit in found.edits:
        changed = merged(given, {field.removeprefix("spec."): value for field, value in edit.items()})
        assert [str(each) for each in validate_job("sum", changed).findings] == []
    assert found.edits
