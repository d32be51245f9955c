"""The environments by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from rlt_api.blocks.rollout import MultiTurn
from rlt_api.training_config import FUNCTIONS_DIRECTORY
from rlt_trainer.environments.calculator import Calculator
from rlt_trainer.environments.environment import Environment

ENVIRONMENTS: dict[str, Callable[[], Environment]] = {"calculator": Calculator}


def load_environment(multi_turn: MultiTurn) -> Callable[[], Environment]:
    """What makes an environment for each conversation: one of ENVIRONMENTS, or the user's own `module:Class`.

    Modules of multiTurn.configMap are found before all others. Raises ValueError when there is no such environment.
    """
    name = multi_turn.environment
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"rollout.multiTurn.environment {name}: there is no such environment. Take {', '.join(ENVIRONMENTS)}, or "
            "module:Class of your own."
        )
    folder = f"{FUNCTIONS_DIRECTORY}/{multi_turn.config_map}"
    if multi_turn.config_map is not None and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        made: Callable[[], Environment] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"rollout.multiTurn.environment {name} could not be loaded: {error}.") from error
    return made
