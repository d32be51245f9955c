"""What pydantic finds wrong, in our words: path, value, what is wrong, and the nearest right value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlt_api.finding import MAX_LENGTH, Finding, child, shown
from rlt_api.model import ApiModel
from rlt_api.schema import fields_of, leaves
from rlt_api.spelling import nearest_word

WORDS_OF_OTHERS = {
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
"""Names that verl's and ROLL's users know, where ours is another -> where it is here. All of them: mapping.toml."""

MOST = 100
"""Findings of one manifest's structure: more of them help nobody."""


def nearest(word: str, words: list[str]) -> str | None:
    """The word that was probably meant: snake_case is as good as camelCase."""
    alike = {_bare(each): each for each in words}
    bare = _bare(word[:MAX_LENGTH])
    return alike.get(bare) or alike.get(nearest_word(bare, alike, most=max(1, len(bare) // 3)) or "")


def unknown(path: str, name: str, known: list[str], elsewhere: list[str] | None = None) -> Finding:
    """A field that there is not; `elsewhere` are the paths of all that there are."""
    bare = _bare(name)
    here = {_bare(each): each for each in known}.get(bare)
    there = WORDS_OF_OTHERS.get(name.lower()) or next(
        (each for each in elsewhere or [] if _bare(each.rpartition(".")[2]) == bare), None
    )
    meant = here or there or nearest(name, known)
    fix = f"did you mean {meant}?" if meant else f"leave it out; known here: {', '.join(sorted(known)) or 'nothing'}"
    return Finding(path, shown(name), "is not a field", fix)


def schema_findings(error: ValidationError, model: type[ApiModel], path: str) -> Iterator[Finding]:
    """A finding for each of pydantic's errors."""
    for problem in error.errors(include_url=False)[:MOST]:
        yield _finding(problem, model, path)


def _finding(problem: ErrorDetails, model: type[ApiModel], path: str) -> Finding:
    location, value, given = path, shown(_json(problem["input"])), problem["input"]
    for part in problem["loc"]:
        location = child(location, part)
    context = problem.get("ctx", {})
    message = problem["msg"].replace("Input s", "s", 1)
    match problem["type"]:
        case "extra_forbidden":
            known = fields_of(model, problem["loc"][:-1])
            return unknown(location, str(problem["loc"][-1]), known, [leaf for leaf, _ in leaves(model, path)])
        case "missing":
            return Finding(location, "none", "is required", "give it")
        case "literal_error" | "enum":
            choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            meant = nearest(str(given), choices)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(choices)}"
            return Finding(location, value, f"must be {context['expected']}", fix)
        case "greater_than_equal" | "less_than_equal":
            (bound,) = context.values()
            return Finding(location, value, message, f"the nearest is {bound}")
        case "greater_than" | "less_than" as kind:
            (bound,) = context.values()
            return Finding(location, value, message, f"use {'more' if kind == 'greater_than' else 'less'} than {bound}")
        case "string_pattern_mismatch":
            return Finding(location, value, f"must match {context['pattern']}", "change it")
        case "string_too_long" | "too_long":
            return Finding(location, value, message, f"use {context['max_length']} at most")
        case "int_type" | "int_from_float" if isinstance(given, float) and math.isfinite(given):
            low = math.floor(given)
            return Finding(location, value, "must be a whole number", f"use {low} or {low + 1}")
        case "int_type" | "float_type" | "bool_type" if isinstance(given, str) and given:
            return Finding(location, value, f"{message}, not text", f"write {shown(given)} without quotes")
        case "string_type" if isinstance(given, int | float):
            return Finding(location, value, message, f'write "{_json(given)}" in quotes')
        case "duplicate_key":
            return Finding(child(location, context["index"]), str(context["name"]), message, "keep one of them")
        case _:
            return Finding(location, value, message, "change it")


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace("pergpu", "perdevice")
