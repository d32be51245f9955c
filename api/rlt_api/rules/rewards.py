"""Rewards, environments and tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce

from pydantic import JsonValue, ValidationError

from rlt_api.blocks.rewards import Judge
from rlt_api.findings.finding import Edit, Finding, child_path, printable, remove, use
from rlt_api.findings.kinds import effect_only_with, exactly_one, misspelled, superfluous
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.reward_rules import RULE_OPTIONS

REWARD_RULES = tuple(RULE_OPTIONS)
"""The valid values of rewards[].name. The trainer has a function for each."""
SOURCES = ("name", "function", "model", "judge")
REQUEST_FIELDS = ("model", "messages", "stream", "n")
"""Fields of a judge's request that the trainer sets or relies on."""
CONVERSATION = "conversation"
MULTI_TURN = "spec.rollout.multiTurn"
SIDES = "environment, openenv, tools and agent"
ENVIRONMENTS = ("calculator",)
"""The built-in environments (rlt_trainer/environments/environment.py)."""


def validate_rewards(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A reward must have exactly one of name, function, model and judge. options are for known rules by name, functions
    and judges, env is for functions, and concurrency not for models."""
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        given = [name for name in SOURCES if getattr(reward, name) is not None]
        if len(given) != 1:
            yield exactly_one(field, given, of="name, function, model and judge", rule="reward-choice")
        if reward.name is not None and reward.name not in REWARD_RULES:
            meant = find_nearest_word(reward.name.lower(), REWARD_RULES, max_distance=3)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(REWARD_RULES)}"
            path = f"{field}.name"
            edits = use(path, *([meant] if meant else REWARD_RULES))
            yield Finding(path, reward.name, "is not a reward rule", fix, rule="reward-name", edits=edits)
        elif reward.name is not None:
            yield from validate_reward_options(reward.name, reward.options, f"{field}.options")
        for name, has_effect, sources in (
            ("options", reward.model is None, "name, function and judge"),
            ("env", reward.function is not None, "function"),
            ("concurrency", reward.model is None, "name, function and judge"),
        ):
            if getattr(reward, name) and not has_effect:
                yield effect_only_with(f"{field}.{name}", sources, rule="reward-choice", involved=(field,))


def validate_reward_options(rule: str, options: Mapping[str, JsonValue], field: str) -> Iterator[Finding]:
    """Validate the options of a reward rule."""
    try:
        RULE_OPTIONS[rule].model_validate(options)
    except ValidationError as error:
        known = ", ".join(RULE_OPTIONS[rule].model_json_schema(by_alias=True).get("properties", {})) or "none"
        for problem in error.errors():
            path = reduce(child_path, problem["loc"], field)
            value = "none" if problem["type"] == "missing" else printable(str(problem["input"]))
            message = problem["msg"]
            fix = f"the options of {rule} are: {known}"
            edits: tuple[Edit, ...] = ()
            if problem["type"] == "extra_forbidden":
                message = "is not an option"
                fix = f"remove it; {fix}"
                edits = remove(path)
            yield Finding(path, value, message, fix, rule="reward-options", involved=(field,), edits=edits)


def validate_judges(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A judge's prompt must contain {response}, its scorePattern must be a regular expression with one group, minScore
    must be less than maxScore, and options must not replace the request's model or messages."""
    for index, reward in enumerate(spec.rewards):
        if reward.judge is not None:
            yield from _validate_judge(reward.judge, f"spec.rewards[{index}].judge")
            for name in REQUEST_FIELDS:
                if name in reward.options:
                    field = f"spec.rewards[{index}].options.{name}"
                    value = printable(str(reward.options[name]))
                    yield superfluous(field, value, "is set by the trainer", rule="judge")


def _validate_judge(judge: Judge, field: str) -> Iterator[Finding]:
    if "{response}" not in judge.prompt:
        path = f"{field}.prompt"
        message = "does not contain {response}, which is replaced by the response"
        edits = use(path, f"{judge.prompt} {{response}}")
        yield Finding(path, printable(judge.prompt[:60]), message, "add {response}", rule="judge", edits=edits)
    if judge.min_score >= judge.max_score:
        path = f"{field}.minScore"
        lower = judge.max_score - 1
        message = f"is not less than maxScore {judge.max_score:g}"
        fix = f"use a lower value, such as {lower:g}"
        involved = (f"{field}.maxScore",)
        edits = use(path, lower)
        yield Finding(path, f"{judge.min_score:g}", message, fix, rule="judge", involved=involved, edits=edits)
    yield from _validate_pattern(f"{field}.scorePattern", judge.score_pattern, "(?i)score: ([0-9.]+)", rule="judge")


def _validate_pattern(field: str, pattern: str, example: str, *, rule: str) -> Iterator[Finding]:
    try:
        problem = "" if re.compile(pattern).groups == 1 else "must have exactly one group"
    except (re.error, OverflowError, RecursionError) as error:
        problem = f"is not a regular expression: {error}"
    if problem:
        fix = f"use one such as {example}"
        yield Finding(field, printable(pattern), problem, fix, rule=rule, edits=use(field, example))


def validate_openenv(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """openenv.actionPattern must be a regular expression with one group."""
    openenv = spec.rollout.multi_turn.openenv if spec.rollout.multi_turn else None
    if openenv is not None and openenv.action_pattern is not None:
        field = f"{MULTI_TURN}.openenv.actionPattern"
        yield from _validate_pattern(field, openenv.action_pattern, "(?s)<answer>(.*?)</answer>", rule="openenv")


def validate_conversations(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """multiTurn must have exactly one of environment, openenv, tools and agent. A tool must have exactly one of name,
    function and mcp, and an MCP server exactly one of url and command."""
    multi_turn = spec.rollout.multi_turn
    if multi_turn is None:
        return
    environment = multi_turn.environment
    field = f"{MULTI_TURN}.environment"
    if environment is not None and environment not in ENVIRONMENTS and environment.count(":") != 1:
        meant = find_nearest_word(environment.lower(), ENVIRONMENTS, max_distance=3)
        message = "is neither a built-in environment nor module:Class"
        other = "use calculator, or your own module:Class"
        yield misspelled(field, environment, message, meant, otherwise=other, rule=CONVERSATION)
    sides = [name for name in ("environment", "openenv", "tools", "agent") if getattr(multi_turn, name)]
    if not sides:
        message = f"must have exactly one of {SIDES}"
        fix = "add one of them, such as environment: calculator"
        yield Finding(MULTI_TURN, "none", message, fix, rule=CONVERSATION, edits=use(field, "calculator"))
    elif len(sides) > 1:
        yield exactly_one(MULTI_TURN, sides, of=SIDES, rule=CONVERSATION)
    for index, tool in enumerate(multi_turn.tools):
        field = f"{MULTI_TURN}.tools[{index}]"
        given = [name for name in ("name", "function", "mcp") if getattr(tool, name) is not None]
        if len(given) != 1:
            yield exactly_one(field, given, of="name, function and mcp", rule=CONVERSATION)
        server = tool.mcp
        if server is None:
            continue
        field = f"{field}.mcp"
        if (server.url is None) == (server.command is None):
            given = ["url", "command"] if server.url else []
            value = "both" if server.url else "none"
            yield exactly_one(field, given, of="url and command", value=value, rule=CONVERSATION)
        if server.api_key and server.url is None:
            yield effect_only_with(f"{field}.apiKey", "url", rule=CONVERSATION, involved=(field,))
        if server.env and server.command is None:
            yield effect_only_with(f"{field}.env", "command", rule=CONVERSATION, involved=(field,))
        if server.sandbox and server.command is None:
            yield effect_only_with(f"{field}.sandbox", "command", rule=CONVERSATION, involved=(field,))


RULES = (
    validate_rewards,
    validate_judges,
    validate_openenv,
    validate_conversations,
)
