"""spec.rollout.multiTurn.sandbox: what the pods need, what the job needs to use them, and the agents in them."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.rollout import MultiTurn
from rlt_api.findings.finding import Finding, printable, use
from rlt_api.findings.kinds import below, effect_only_with, exactly_one
from rlt_api.model import quantity_value
from rlt_api.rules.images import validate_image
from rlt_api.rules.pods import validate_node_selector, validate_tolerations
from rlt_api.rules.security import has_ray_token
from rlt_api.spec.job_spec import RLTrainingJobSpec

SANDBOX = "spec.rollout.multiTurn.sandbox"
AGENT = "spec.rollout.multiTurn.agent"
TOKEN = "spec.security.rayToken"
RULE = "sandbox"
MINIMUM = {"cpu": "10m", "memory": "128Mi", "disk": "1Mi"}
"""Field -> the least amount with which the server of a pod and a small program run."""


def validate_sandbox(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """multiTurn.sandbox needs a tool in it, an agent or a reward function, which run programs there, and the token of
    Ray: without it, every program that reaches the head could run Ray jobs."""
    multi_turn = spec.rollout.multi_turn
    if multi_turn is None or multi_turn.sandbox is None:
        return
    if not runs_in_sandbox(multi_turn) and all(reward.function is None for reward in spec.rewards):
        programs = ("spec.rollout.multiTurn.tools", AGENT, "spec.rewards")
        yield effect_only_with(SANDBOX, "a tool in it, an agent or a reward function", rule=RULE, involved=programs)
    if not has_ray_token(spec):
        message = "needs the token of Ray, from which the key of the sandboxes is derived"
        if spec.security.ray_token is False:
            fix = f"use {TOKEN.removeprefix('spec.')}: true"
            yield Finding(SANDBOX, "given", message, fix, rule=RULE, involved=(TOKEN,), edits=use(TOKEN, True))
        else:
            involved = ("spec.cluster.rayVersion",)
            yield Finding(
                SANDBOX, "given", message, "use an image with Ray 2.52 or later", rule=RULE, involved=involved
            )


def runs_in_sandbox(multi_turn: MultiTurn) -> bool:
    """Whether a tool or an agent needs the sandbox. Whether a reward function does, its parameters show."""
    return multi_turn.agent is not None or any(
        tool.name == "python" or (tool.mcp is not None and tool.mcp.sandbox) for tool in multi_turn.tools
    )


def validate_sandboxed_servers(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """An MCP server with sandbox needs multiTurn.sandbox, and gets no Secrets: the policy could read them."""
    multi_turn = spec.rollout.multi_turn
    for index, tool in enumerate(multi_turn.tools if multi_turn else []):
        if multi_turn is None or tool.mcp is None or not tool.mcp.sandbox:
            continue
        field = f"spec.rollout.multiTurn.tools[{index}].mcp"
        if multi_turn.sandbox is None:
            message = "needs sandboxes, and the job has none"
            fix = f"add {SANDBOX.removeprefix('spec.')}"
            edits = use(SANDBOX, {})
            yield Finding(f"{field}.sandbox", "true", message, fix, rule=RULE, involved=(SANDBOX,), edits=edits)
        for position, variable in enumerate(tool.mcp.env):
            if variable.secret_key_ref is not None:
                message = "is a Secret, which the programs of the policy in the sandbox could read"
                fix = "use a value without Secrets, or run the server outside of the sandbox"
                name = printable(variable.name)
                involved = (f"{field}.sandbox",)
                yield Finding(f"{field}.env[{position}]", name, message, fix, rule=RULE, involved=involved)


def validate_agent(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """multiTurn.agent must have exactly one of name and command: configMap is for the function, and rewardFile for the
    program, which needs multiTurn.sandbox."""
    multi_turn = spec.rollout.multi_turn
    agent = multi_turn.agent if multi_turn else None
    if multi_turn is None or agent is None:
        return
    given = [name for name in ("name", "command") if getattr(agent, name) is not None]
    if len(given) != 1:
        yield exactly_one(AGENT, given, of="name and command", rule="agent")
    if agent.config_map is not None and agent.name is None:
        yield effect_only_with(f"{AGENT}.configMap", "name", rule="agent", involved=(AGENT,))
    if agent.reward_file is not None and agent.command is None:
        yield effect_only_with(f"{AGENT}.rewardFile", "command", rule="agent", involved=(AGENT,))
    if agent.command is not None and multi_turn.sandbox is None:
        field = f"{AGENT}.command"
        message = "is a program of a sandbox, and the job has none"
        fix = f"add {SANDBOX.removeprefix('spec.')}, such as {{image: registry.example.com/agent:1}}"
        yield Finding(
            field, printable(agent.command[0]), message, fix, rule="agent", involved=(SANDBOX,), edits=use(SANDBOX, {})
        )


def validate_sandbox_pods(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The pods of multiTurn.sandbox must have a valid image, enough resources, and valid node selectors and
    tolerations."""
    sandbox = spec.rollout.multi_turn.sandbox if spec.rollout.multi_turn else None
    if sandbox is None:
        return
    for name, minimum in MINIMUM.items():
        value = getattr(sandbox, name)
        if quantity_value(value) < quantity_value(minimum):
            yield below(f"{SANDBOX}.{name}", value, minimum, "is too small for a pod", rule=RULE)
    if sandbox.image is not None:
        yield from validate_image(sandbox.image, f"{SANDBOX}.image")
    yield from validate_node_selector(sandbox.node_selector, f"{SANDBOX}.nodeSelector")
    yield from validate_tolerations(sandbox.tolerations, f"{SANDBOX}.tolerations")


RULES = (validate_sandbox, validate_agent, validate_sandboxed_servers, validate_sandbox_pods)
