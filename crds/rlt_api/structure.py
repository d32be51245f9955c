"""Conversion of pydantic's errors to findings with path, value, message and the nearest valid value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlt_api.finding import MAX_LENGTH, Finding, child_path, printable
from rlt_api.model import ApiModel
from rlt_api.schema import list_fields, walk_leaves
from rlt_api.spelling import find_nearest_word

FOREIGN_NAMES = {
    "adv_estimator": "spec.algorithm.advEstimator",
    "gpus": "spec.cluster.workers[].accelerator.count",
    "kl_coef": "spec.algorithm.klInReward.klCoef",
    "kl_loss_coef": "spec.algorithm.klLossCoef",
    "log_prob_micro_batch_size_per_gpu": "spec.training.logProbMicroBatchSizePerDevice",
    "loss_mode": "spec.algorithm.policyLoss",
    "lr": "spec.training.learningRate",
    "lr_warmup_steps": "spec.training.lrSchedule.warmupSteps",
    "model_path": "spec.model.path",
    "n": "spec.rollout.responsesPerPrompt",
    "n_gpus_per_node": "spec.cluster.workers[].accelerator.count",
    "nnodes": "spec.cluster.workers[].replicas",
    "num_return_sequences_in_group": "spec.rollout.responsesPerPrompt",
    "ppo_max_token_len_per_gpu": "spec.training.ppoMaxTokenLenPerDevice",
    "ppo_micro_batch_size": "spec.training.ppoMicroBatchSizePerDevice",
    "ppo_micro_batch_size_per_gpu": "spec.training.ppoMicroBatchSizePerDevice",
    "resume_mode": "spec.checkpoint.resume",
    "rollout_batch_size": "spec.training.trainBatchSize",
    "tensor_model_parallel_size": "spec.rollout.tensorParallelSize",
    "total_training_steps": "spec.training.totalSteps",
    "ulysses_sequence_parallel_size": "spec.training.contextParallelSize",
    "val_before_train": "spec.training.validation.beforeTrain",
}
"""Name of a setting in verl or ROLL -> its field here, where the names differ. mapping.toml has the complete list."""

MAX_FINDINGS = 100
"""Maximum number of findings about the structure of one manifest."""


def find_nearest_name(name: str, names: list[str]) -> str | None:
    """Return the name that was probably meant, whether in snake_case or in camelCase."""
    by_bare_name = {_bare(each): each for each in names}
    bare = _bare(name[:MAX_LENGTH])
    nearest = find_nearest_word(bare, by_bare_name, max_distance=max(1, len(bare) // 3))
    return by_bare_name.get(bare) or by_bare_name.get(nearest or "")


def report_unknown_field(path: str, name: str, known: list[str], elsewhere: list[str] | None = None) -> Finding:
    """Build the finding for an unknown field; `known` are its siblings, `elsewhere` the paths of all fields."""
    bare = _bare(name)
    here = {_bare(each): each for each in known}.get(bare)
    there = FOREIGN_NAMES.get(name.lower()) or next(
        (each for each in elsewhere or [] if _bare(each.rpartition(".")[2]) == bare), None
    )
    meant = here or there or find_nearest_name(name, known)
    fix = f"did you mean {meant}?" if meant else f"remove it; known fields: {', '.join(sorted(known)) or 'none'}"
    return Finding(path, printable(name), "is not a field", fix)


def convert_errors(error: ValidationError, model: type[ApiModel], path: str) -> Iterator[Finding]:
    """Yield a finding for each of pydantic's errors, up to MAX_FINDINGS."""
    for problem in error.errors(include_url=False)[:MAX_FINDINGS]:
        yield _convert_error(problem, model, path)


def _convert_error(problem: ErrorDetails, model: type[ApiModel], path: str) -> Finding:
    location, value, given = path, printable(_json(problem["input"])), problem["input"]
    for part in problem["loc"]:
        location = child_path(location, part)
    context = problem.get("ctx", {})
    message = problem["msg"].replace("Input s", "s", 1)
    match problem["type"]:
        case "extra_forbidden":
            known, leaves = list_fields(model, problem["loc"][:-1]), [leaf for leaf, _ in walk_leaves(model, path)]
            return report_unknown_field(location, str(problem["loc"][-1]), known, leaves)
        case "missing":
            return Finding(location, "none", "is required", "add it")
        case "literal_error" | "enum":
            choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            meant = find_nearest_name(str(given), choices)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(choices)}"
            return Finding(location, value, f"must be {context['expected']}", fix)
        case "greater_than_equal" | "less_than_equal":
            (bound,) = context.values()
            return Finding(location, value, message, f"use {bound}")
        case "greater_than" | "less_than" as kind:
            (bound,) = context.values()
            side = "above" if kind == "greater_than" else "below"
            return Finding(location, value, message, f"use a value {side} {bound}")
        case "string_pattern_mismatch":
            return Finding(location, value, f"must match {context['pattern']}", "change it to match")
        case "string_too_long" | "too_long":
            return Finding(location, value, message, f"use at most {context['max_length']}")
        case "int_type" | "int_from_float" if isinstance(given, float) and math.isfinite(given):
            low = math.floor(given)
            return Finding(location, value, "must be an integer", f"use {low} or {low + 1}")
        case "int_type" | "float_type" | "bool_type" if isinstance(given, str) and given:
            return Finding(location, value, f"{message}, not text", f"write {printable(given)} without quotes")
        case "string_type" if isinstance(given, int | float):
            return Finding(location, value, message, f'write "{_json(given)}" in quotes')
        case "duplicate_key":
            return Finding(child_path(location, context["index"]), str(context["name"]), message, "remove one of them")
        case _:
            return Finding(location, value, message, "change it")


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace("pergpu", "perdevice")
