"""Values of Secrets and ConfigMaps for one reward, tool or environment: variables of the pods with their own prefix.

The trainer removes the prefix, and passes a value to its reward, tool or environment alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.blocks.resources import EnvVar, KeyReference
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import MultiTurn

API_KEY = "API_KEY"
"""The name of an API key after the prefix of its reward, tool or environment."""
OPENENV_PREFIX = "RLT_OPENENV_"
"""The prefix of the variables for rollout.multiTurn.openenv."""


def reward_prefix(index: int) -> str:
    """Return the prefix of the variables for rewards[index]."""
    return f"RLT_REWARD_{index}_"


def tool_prefix(index: int) -> str:
    """Return the prefix of the variables for rollout.multiTurn.tools[index]."""
    return f"RLT_TOOL_{index}_"


def list_pod_variables(rewards: Sequence[Reward], multi_turn: MultiTurn | None) -> list[EnvVar]:
    """List the variables of the pods. Plain values are in the trainer's config instead."""
    found: list[EnvVar] = []
    for index, reward in enumerate(rewards):
        found += _add_prefix(reward_prefix(index), reward.env, reward.judge.api_key if reward.judge else None)
    for index, tool in enumerate(multi_turn.tools if multi_turn else []):
        if tool.mcp is not None:
            found += _add_prefix(tool_prefix(index), tool.mcp.env, tool.mcp.api_key)
    if multi_turn and multi_turn.openenv:
        found += _add_prefix(OPENENV_PREFIX, [], multi_turn.openenv.api_key)
    return found


def _add_prefix(prefix: str, env: Sequence[EnvVar], api_key: KeyReference | None) -> list[EnvVar]:
    key = [EnvVar(name=API_KEY, secret_key_ref=api_key)] if api_key else []
    return [
        variable.model_copy(update={"name": prefix + variable.name})
        for variable in [*env, *key]
        if variable.value is None
    ]
