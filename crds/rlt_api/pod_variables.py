"""Values of Secrets and ConfigMaps for one reward: as variables of the pods, with a prefix of their own.

The trainer removes the prefix, and passes a value to its reward alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.blocks.resources import EnvVar, KeyReference
from rlt_api.blocks.rewards import Reward

API_KEY = "API_KEY"
"""The name of an API key after the prefix of its reward."""


def reward_prefix(index: int) -> str:
    """Return the prefix of the variables of rewards[index]."""
    return f"RLT_REWARD_{index}_"


def list_pod_variables(rewards: Sequence[Reward]) -> list[EnvVar]:
    """List the variables of the pods. Plain values are in the trainer's config instead."""
    found: list[EnvVar] = []
    for index, reward in enumerate(rewards):
        found += _add_prefix(reward_prefix(index), reward.env, reward.judge.api_key if reward.judge else None)
    return found


def _add_prefix(prefix: str, env: Sequence[EnvVar], api_key: KeyReference | None) -> list[EnvVar]:
    key = [EnvVar(name=API_KEY, secret_key_ref=api_key)] if api_key else []
    return [
        variable.model_copy(update={"name": prefix + variable.name})
        for variable in [*env, *key]
        if variable.value is None
    ]
