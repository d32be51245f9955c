"""What the preflight checks of all frameworks share: why a check is not possible, and the smallest batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from rlt_pod.preflight.expected import NotPossible

ENGINES = ("vllm", "sglang")
"""The engines that the check `engine` starts."""
ENGINE_REMEDY = "The stage training starts the engine. Set preflight.command for a program that rlt does not know."
TRIAL_REMEDY = "Set preflight.command to a program that trains for one step."


def reject_engine(reason: str) -> NotPossible:
    """Build the reason why the check `engine` is not possible."""
    return NotPossible("engine", "services", reason, ENGINE_REMEDY)


def reject_trial(reason: str) -> NotPossible:
    """Build the reason why the check `training-step` is not possible."""
    return NotPossible("training-step", "training", reason, TRIAL_REMEDY)


def format_options(settings: Mapping[str, object]) -> list[str]:
    """Write settings as options: two words each."""
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def compute_batch(prompts: int, responses: int, unit: int) -> int:
    """Compute the smallest number of prompts, of at most `prompts`, whose responses are a multiple of `unit`."""
    return min(prompts, unit // gcd(unit, responses))
