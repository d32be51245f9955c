"""ConfigMaps with user-defined functions. Every pod mounts all of them."""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY
from rlt_core.job import Manifest


def list_function_maps(spec: RLTrainingJobSpec) -> list[str]:
    """Names of the ConfigMaps, each once, sorted."""
    algorithm = spec.algorithm
    multi_turn = spec.rollout.multi_turn
    functions = [
        *(reward.function for reward in spec.rewards),
        algorithm.advantage_function,
        algorithm.policy_loss_function,
        *(tool.function for tool in (multi_turn.tools if multi_turn else [])),
    ]
    named = [function.config_map for function in functions if function is not None]
    if multi_turn:
        named += [multi_turn.config_map, multi_turn.agent.config_map if multi_turn.agent else None]
    return sorted({name for name in named if name is not None})


def build_function_volumes(spec: RLTrainingJobSpec) -> list[Manifest]:
    """Build a volume for each ConfigMap."""
    return [
        {"name": f"functions-{number}", "configMap": {"name": name}}
        for number, name in enumerate(list_function_maps(spec))
    ]


def build_function_mounts(spec: RLTrainingJobSpec) -> list[Manifest]:
    """Build a mount for each ConfigMap, in a folder with its name."""
    return [
        {"name": f"functions-{number}", "mountPath": f"{FUNCTIONS_DIRECTORY}/{name}", "readOnly": True}
        for number, name in enumerate(list_function_maps(spec))
    ]
