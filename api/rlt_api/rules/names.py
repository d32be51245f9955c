"""Fields that hold a name: of a data set, a Python module, a project. URLs, files and paths are none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import Finding, printable, use
from rlt_api.rules.evaluation import list_suite_data
from rlt_api.rules.locations import find_hub_name, is_hub_name
from rlt_api.spec.job_spec import RLTrainingJobSpec

FILES = (".py", ".pyc", ".ipynb")
"""Ends of file names, in place of the module's name."""
NOT_IN_PROJECT = re.compile(r"[/\\#?%:]")
"""Characters that Weights & Biases rejects in the name of a project."""


def validate_hub_dataset(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """hub.name of data and of evaluation[].data must be the name of a data set on the Hugging Face hub: [owner/]name,
    and no URL, revision or folder."""
    hubs = {"spec.data.hub": spec.data.hub if spec.data else None}
    hubs |= {f"{field}.hub": own.hub for field, own in list_suite_data(spec)}
    for block, hub in hubs.items():
        if hub is None or is_hub_name(hub.name):
            continue
        field = f"{block}.name"
        message = "is not the name of a data set on the Hugging Face hub"
        name, revision = find_hub_name(hub.name)
        fix = "use the name as owner/name, or data.files for files on a volume"
        if name:
            fix = f"use {name}" + (f", and {block.removeprefix('spec.')}.revision: {revision}" if revision else "")
        edits = use(field, name) if name else ()
        yield Finding(field, printable(hub.name), message, fix, rule="hub-name", edits=edits)


def list_functions(spec: RLTrainingJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each module:function or module:Class in the spec."""
    algorithm = spec.algorithm
    multi_turn = spec.rollout.multi_turn
    for field, function in {
        "spec.algorithm.advantageFunction.name": algorithm.advantage_function,
        "spec.algorithm.policyLossFunction.name": algorithm.policy_loss_function,
        **{f"spec.rewards[{index}].function.name": reward.function for index, reward in enumerate(spec.rewards)},
        **{
            f"spec.rollout.multiTurn.tools[{index}].function.name": tool.function
            for index, tool in enumerate(multi_turn.tools if multi_turn else [])
        },
    }.items():
        if function is not None:
            yield field, function.name
    if multi_turn and multi_turn.agent and multi_turn.agent.name:
        yield "spec.rollout.multiTurn.agent.name", multi_turn.agent.name
    if multi_turn and ":" in (multi_turn.environment or ""):
        yield "spec.rollout.multiTurn.environment", multi_turn.environment or ""


def validate_function_modules(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A user-defined function or class is module:name, with the module as in an import statement: without .py, and
    without empty parts."""
    for field, value in list_functions(spec):
        module, _, name = value.partition(":")
        suffix = next((each for each in FILES if module.endswith(each)), "")
        parts = module.removesuffix(suffix).split(".")
        if not suffix and all(parts):
            continue
        wanted = f"{'.'.join(part for part in parts if part)}:{name}"
        message = "is a file, and the module is meant as in an import statement" if suffix else "is not a module"
        yield Finding(field, value, message, f"use {wanted}", rule="function-module", edits=use(field, wanted))


def validate_wandb_project(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """wandb.project and wandb.entity are names. Weights & Biases rejects / \\ # ? % and : in them; a team is in
    wandb.entity."""
    wandb = spec.observability.wandb
    for name, value in {"project": wandb.project, "entity": wandb.entity}.items() if wandb else ():
        if value and NOT_IN_PROJECT.search(value):
            field = f"spec.observability.wandb.{name}"
            last = NOT_IN_PROJECT.split(value.rstrip("/"))[-1]
            first = NOT_IN_PROJECT.split(value)[0]
            is_pair = name == "project" and value == f"{first}/{last}"
            fix = f"use {last}" + (f", and wandb.entity: {first}" if is_pair else "")
            message = "is a name of Weights & Biases, without / \\ # ? % and :"
            yield Finding(field, printable(value), message, fix, rule="wandb-name", edits=use(field, last))


def validate_judge_model(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """judge.model is the name under which the server has the model. Its URL is judge.baseUrl."""
    for index, reward in enumerate(spec.rewards):
        if reward.judge and "://" in reward.judge.model:
            field = f"spec.rewards[{index}].judge.model"
            name, _ = find_hub_name(reward.judge.model)
            fix = f"use {name}" if name else "use a name that GET /v1/models of the server returns"
            message = "is a URL, and the name of the model is meant"
            edits = use(field, name) if name else ()
            yield Finding(field, printable(reward.judge.model), message, fix, rule="judge-model", edits=edits)


RULES = (validate_judge_model, validate_hub_dataset, validate_function_modules, validate_wandb_project)
