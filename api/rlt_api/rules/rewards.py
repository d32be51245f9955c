"""Rewards, environments and tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce

from pydantic import JsonValue, ValidationError

from rlt_api.blocks.rewards import Judge
from rlt_api.findings.finding import Finding, child_path, keep_one, printable, remove, use
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.reward_rules import RULE_OPTIONS

REWARD_RULES = tuple(RULE_OPTIONS)
"""The valid values of rewards[].name. The trainer has a function for each."""
SOURCES = ("name", "function", "model", "judge")
REQUEST_FIELDS = ("model", "messages", "stream", "n")
"""Fields of a judge's request that the trainer sets or relies on."""
MULTI_TURN = "spec.rollout.multiTurn"
ENVIRONMENTS = ("calculator",)
"""The built-in environments (rlt_trainer/environments/environment.py)."""


def validate_rewards(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A reward must have exactly one of name, function, model and judge. options are for known rules by name, functions
    and judges, env is for functions, and concurrency not for models."""
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        given = [name for name in SOURCES if getattr(reward, name) is not None]
        if len(given) != 1:
            value = " and ".join(given) or "none"
            message = "must have exactly one of name, function, model and judge"
            edits = keep_one(*(f"{field}.{each}" for each in given))
            yield Finding(
                field, value, message, f"{'keep' if given else 'add'} one of them", "reward-choice", (), edits
            )
        if reward.name is not None and reward.name not in REWARD_RULES:
            meant = find_nearest_word(reward.name.lower(), REWARD_RULES, max_distance=3)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(REWARD_RULES)}"
            path = f"{field}.name"
            edits = use(path, *([meant] if meant else REWARD_RULES))
            yield Finding(path, reward.name, "is not a reward rule", fix, "reward-name", edits=edits)
        elif reward.name is not None:
            yield from validate_reward_options(reward.name, reward.options, f"{field}.options")
        for name, has_effect, sources in (
            ("options", reward.model is None, "name, function and judge"),
            ("env", reward.function is not None, "function"),
            ("concurrency", reward.model is None, "name, function and judge"),
        ):
            if getattr(reward, name) and not has_effect:
                message = f"has an effect only with {sources}"
                path = f"{field}.{name}"
                yield Finding(path, "given", message, "remove it", "reward-choice", (field,), remove(path))


def validate_reward_options(rule: str, options: Mapping[str, JsonValue], field: str) -> Iterator[Finding]:
    """Validate the options of a reward rule."""
    try:
        RULE_OPTIONS[rule].model_validate(options)
    except ValidationError as error:
        for problem in error.errors():
            known = ", ".join(RULE_OPTIONS[rule].model_json_schema(by_alias=True).get("properties", {})) or "none"
            value = "none" if problem["type"] == "missing" else printable(str(problem["input"]))
            path, fix = reduce(child_path, problem["loc"], field), f"the options of {rule} are: {known}"
            message, edits = problem["msg"], remove(path) if problem["type"] == "extra_forbidden" else ()
            if edits:
                message, fix = "is not an option", f"remove it; {fix}"
            yield Finding(path, value, message, fix, "reward-options", (field,), edits)


def validate_judges(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A judge's prompt must contain {response}, its scorePattern must be a regular expression with one group, minScore
    must be less than maxScore, and options must not replace the request's model or messages."""
    for index, reward in enumerate(spec.rewards):
        if reward.judge is not None:
            yield from _validate_judge(reward.judge, f"spec.rewards[{index}].judge")
            for name in REQUEST_FIELDS:
                if name in reward.options:
                    field, message = f"spec.rewards[{index}].options.{name}", "is set by the trainer"
                    value = printable(str(reward.options[name]))
                    yield Finding(field, value, message, "remove it", "judge", edits=remove(field))


def _validate_judge(judge: Judge, field: str) -> Iterator[Finding]:
    if "{response}" not in judge.prompt:
        edits = use(f"{field}.prompt", f"{judge.prompt} {{response}}")
        value, message = printable(judge.prompt[:60]), "does not contain {response}, which is replaced by the response"
        yield Finding(f"{field}.prompt", value, message, "add {response}", "judge", edits=edits)
    if judge.min_score >= judge.max_score:
        lower = judge.max_score - 1
        message, fix = f"is not less than maxScore {judge.max_score:g}", f"use a lower value, such as {lower:g}"
        path, involved = f"{field}.minScore", (f"{field}.maxScore",)
        yield Finding(path, f"{judge.min_score:g}", message, fix, "judge", involved, use(path, lower))
    try:
        problem = "" if re.compile(judge.score_pattern).groups == 1 else "must have exactly one group"
    except (re.error, OverflowError, RecursionError) as error:
        problem = f"is not a regular expression: {error}"
    if problem:
        path, example = f"{field}.scorePattern", "(?i)score: ([0-9.]+)"
        fix, edits = f"use one such as {example}", use(path, example)
        yield Finding(path, printable(judge.score_pattern), problem, fix, "judge", edits=edits)


def validate_conversations(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """multiTurn must have exactly one of environment, tools and agent. A tool must have exactly one of name, function
    and mcp, and an MCP server exactly one of url and command."""
    multi_turn = spec.rollout.multi_turn
    if multi_turn is None:
        return
    environment = multi_turn.environment
    if environment is not None and environment not in ENVIRONMENTS and environment.count(":") != 1:
        meant = find_nearest_word(environment.lower(), ENVIRONMENTS, max_distance=3)
        fix = f"did you mean {meant}?" if meant else "use calculator, or your own module:Class"
        message = "is neither a built-in environment nor module:Class"
        field = f"{MULTI_TURN}.environment"
        yield Finding(field, environment, message, fix, "conversation", edits=use(field, meant) if meant else ())
    sides = [name for name in ("environment", "tools", "agent") if getattr(multi_turn, name)]
    if len(sides) != 1:
        message, value = "must have exactly one of environment, tools and agent", " and ".join(sides) or "none"
        fix = "keep one of them" if sides else "add one of them, such as environment: calculator"
        fields = [f"{MULTI_TURN}.{side}" for side in sides]
        edits = keep_one(*fields) if sides else use(f"{MULTI_TURN}.environment", "calculator")
        yield Finding(MULTI_TURN, value, message, fix, "conversation", edits=edits)
    for index, tool in enumerate(multi_turn.tools):
        field = f"{MULTI_TURN}.tools[{index}]"
        given = [name for name in ("name", "function", "mcp") if getattr(tool, name) is not None]
        if len(given) != 1:
            message, fix = (
                "must have exactly one of name, function and mcp",
                f"{'keep' if given else 'add'} one of them",
            )
            edits = keep_one(*(f"{field}.{each}" for each in given))
            yield Finding(field, " and ".join(given) or "none", message, fix, "conversation", edits=edits)
        server = tool.mcp
        if server is None:
            continue
        if (server.url is None) == (server.command is None):
            message, value = "must have exactly one of url and command", "both" if server.url else "none"
            fix = f"{'keep' if server.url else 'add'} one of them"
            edits = remove(f"{field}.mcp.command", f"{field}.mcp.url") if server.url else ()
            yield Finding(f"{field}.mcp", value, message, fix, "conversation", edits=edits)
        for name, given_to, present in (("apiKey", "url", server.api_key), ("env", "command", server.env)):
            if present and getattr(server, given_to) is None:
                message = f"has an effect only with {given_to}"
                path, involved = f"{field}.mcp.{name}", (f"{field}.mcp",)
                yield Finding(path, "given", message, "remove it", "conversation", involved, remove(path))


RULES = (
    validate_rewards,
    validate_judges,
    validate_conversations,
)
