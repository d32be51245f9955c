"""Environment variables of one reward or tool: plain values, and values of Secrets and ConfigMaps from the pod."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlt_api.blocks.resources import EnvVar


def read_variables(env: Sequence[EnvVar], *, prefix: str, field: str) -> dict[str, str]:
    """Return name -> value. Raises ValueError for a value that the pod lacks."""
    return {
        variable.name: read_variable(prefix + variable.name, f"{field}[{index}]")
        if variable.value is None
        else variable.value
        for index, variable in enumerate(env)
    }


def read_variable(name: str, field: str) -> str:
    """Return the value of a pod's variable without white space around it. Raises ValueError if there is none."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise ValueError(
            f"{field}: the variable {name} has no value. Add the key to the Secret or ConfigMap. Without Kubernetes "
            "(rlt run --local), set the variable."
        )
    return value
