"""Rewards, environments and tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce

from pydantic import JsonValue, ValidationError

from rlt_api.blocks.rewards import Judge
from rlt_api.finding import Finding, child_path, printable
from rlt_api.reward_rules import RULE_OPTIONS
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.spelling import find_nearest_word

REWARD_RULES = tuple(RULE_OPTIONS)
"""The valid values of rewards[].name. The trainer has a function for each."""
SOURCES = ("name", "function", "model", "judge")
REQUEST_FIELDS = ("model", "messages", "stream", "n")
"""Fields of a judge's request that the trainer sets or relies on."""
MULTI_TURN = "spec.rollout.multiTurn"


def validate_rewards(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A reward must have exactly one of name, function, model and judge. options are for known rules by name, functions
    and judges, env is for functions, and concurrency not for models."""
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        given = [name for name in SOURCES if getattr(reward, name) is not None]
        if len(given) != 1:
            value = " and ".join(given) or "none"
            message = "must have exactly one of name, function, model and judge"
            yield Finding(field, value, message, f"{'keep' if given else 'add'} one of them", "reward-choice")
        if reward.name is not None and reward.name not in REWARD_RULES:
            meant = find_nearest_word(reward.name.lower(), REWARD_RULES, max_distance=3)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(REWARD_RULES)}"
            yield Finding(f"{field}.name", reward.name, "is not a reward rule", fix, "reward-name")
        elif reward.name is not None:
            yield from validate_reward_options(reward.name, reward.options, f"{field}.options")
        for name, has_effect, sources in (
            ("options", reward.model is None, "name, function and judge"),
            ("env", reward.function is not None, "function"),
            ("concurrency", reward.model is None, "name, function and judge"),
        ):
            if getattr(reward, name) and not has_effect:
                message = f"has an effect only with {sources}"
                yield Finding(f"{field}.{name}", "given", message, "remove it", "reward-choice", (field,))


def validate_reward_options(rule: str, options: Mapping[str, JsonValue], field: str) -> Iterator[Finding]:
    """Validate the options of a reward rule."""
    try:
        RULE_OPTIONS[rule].model_validate(options)
    except ValidationError as error:
        for problem in error.errors():
            known = ", ".join(RULE_OPTIONS[rule].model_json_schema(by_alias=True).get("properties", {})) or "none"
            value = "none" if problem["type"] == "missing" else printable(str(problem["input"]))
            path, fix = reduce(child_path, problem["loc"], field), f"the options of {rule} are: {known}"
            yield Finding(path, value, problem["msg"], fix, "reward-options", (field,))


def validate_judges(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A judge's prompt must contain {response}, its scorePattern must be a regular expression with one group, minScore
    must be less than maxScore, and options must not replace the request's model or messages."""
    for index, reward in enumerate(spec.rewards):
        if reward.judge is not None:
            yield from _validate_judge(reward.judge, f"spec.rewards[{index}].judge")
            for name in REQUEST_FIELDS:
                if name in reward.options:
                    field, message = f"spec.rewards[{index}].options.{name}", "is set by the trainer"
                    yield Finding(field, printable(str(reward.options[name])), message, "remove it", "judge")


def _validate_judge(judge: Judge, field: str) -> Iterator[Finding]:
    if "{response}" not in judge.prompt:
        value, message = printable(judge.prompt[:60]), "does not contain {response}, which is replaced by the response"
        yield Finding(f"{field}.prompt", value, message, "add {response}", "judge")
    if judge.min_score >= judge.max_score:
        message, fix = f"is not less than maxScore {judge.max_score:g}", "use a lower value"
        yield Finding(f"{field}.minScore", f"{judge.min_score:g}", message, fix, "judge", (f"{field}.maxScore",))
    try:
        problem = "" if re.compile(judge.score_pattern).groups == 1 else "must have exactly one group"
    except (re.error, OverflowError, RecursionError) as error:
        problem = f"is not a regular expression: {error}"
    if problem:
        fix = "use one such as (?i)score: ([0-9.]+)"
        yield Finding(f"{field}.scorePattern", printable(judge.score_pattern), problem, fix, "judge")


def validate_conversations(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """multiTurn must have exactly one of environment and tools. A tool must have exactly one of name, function and mcp,
    and an MCP server exactly one of url and command."""
    multi_turn = spec.rollout.multi_turn
    if multi_turn is None:
        return
    if (multi_turn.environment is None) == (not multi_turn.tools):
        message, value = "must have exactly one of environment and tools", "both" if multi_turn.tools else "none"
        fix = "keep one of them" if multi_turn.tools else "add one of them, such as environment: calculator"
        yield Finding(MULTI_TURN, value, message, fix, "conversation")
    for index, tool in enumerate(multi_turn.tools):
        field = f"{MULTI_TURN}.tools[{index}]"
        given = [name for name in ("name", "function", "mcp") if getattr(tool, name) is not None]
        if len(given) != 1:
            message, fix = (
                "must have exactly one of name, function and mcp",
                f"{'keep' if given else 'add'} one of them",
            )
            yield Finding(field, " and ".join(given) or "none", message, fix, "conversation")
        server = tool.mcp
        if server is None:
            continue
        if (server.url is None) == (server.command is None):
            message, value = "must have exactly one of url and command", "both" if server.url else "none"
            fix = f"{'keep' if server.url else 'add'} one of them"
            yield Finding(f"{field}.mcp", value, message, fix, "conversation")
        for name, given_to, present in (("apiKey", "url", server.api_key), ("env", "command", server.env)):
            if present and getattr(server, given_to) is None:
                message = f"has an effect only with {given_to}"
                yield Finding(f"{field}.mcp.{name}", "given", message, "remove it", "conversation", (f"{field}.mcp",))


RULES = (
    validate_rewards,
    validate_judges,
    validate_conversations,
)
