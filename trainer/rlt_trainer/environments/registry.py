"""The environments by name."""

from __future__ import annotations

from collections.abc import Callable

from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.algorithms.user_functions import user_function
from rlt_trainer.environments.calculator import Calculator
from rlt_trainer.environments.environment import Environment

ENVIRONMENTS: dict[str, Callable[[], Environment]] = {"calculator": Calculator}


def load_environment(multi_turn: MultiTurn) -> Callable[[], Environment]:
    """What makes an environment for each conversation: one of ENVIRONMENTS, or the user's own `module:Class`.

    Raises ValueError when there is no such environment.
    """
    name = multi_turn.environment
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    if ":" not in name:
        raise ValueError(
            f"rollout.multiTurn.environment {name}: there is no such environment. Take {', '.join(ENVIRONMENTS)}, or "
            "module:Class of your own."
        )
    own = PythonFunction(name=name, config_map=multi_turn.config_map)
    return user_function(own, field="rollout.multiTurn.environment")
