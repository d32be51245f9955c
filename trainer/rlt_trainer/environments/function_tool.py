"""A user-defined function as a tool. It runs in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.utils.chat_template_utils import (
    DocstringParsingException,
    TypeHintParsingException,
    get_json_schema,
)

from rlt_api.blocks.functions import PythonFunction
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY
from rlt_trainer.algorithms.user_functions import load_user_function
from rlt_trainer.environments.tool import ToolSchema
from rlt_trainer.rewards.outcome import Failure
from rlt_trainer.rewards.sandbox import Sandbox

MAX_PROCESSES = 32
"""Number of calls of a run that run at the same time."""


class FunctionTool:
    """A function in separate processes, which start when needed. A call that hangs is killed with its process."""

    def __init__(self, function: PythonFunction, *, field: str, timeout_s: float) -> None:
        """`timeout_s` limits one call. Raises ValueError if the function cannot be imported or described."""
        self.schema = describe_function(function, field=field)
        path = [f"{FUNCTIONS_DIRECTORY}/{function.config_map}"] if function.config_map else []
        self._sandbox = Sandbox(function.name, timeout_s=timeout_s, processes=MAX_PROCESSES, path=path, returns="text")

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool."""
        result = await self._sandbox.call(arguments)
        return f"error: {result.message}" if isinstance(result, Failure) else str(result)

    def close(self) -> None:
        """End the processes."""
        self._sandbox.close()


def describe_function(function: PythonFunction, *, field: str) -> ToolSchema:
    """Describe a function by its name, type annotations and docstring, as transformers does for chat templates.

    Raises ValueError if it cannot be imported, or lacks annotations or descriptions of its arguments.
    """
    loaded = load_user_function(function, field=field)
    try:
        schema: ToolSchema = get_json_schema(loaded)
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise ValueError(
            f'{field}: "{function.name}" cannot be described to the policy: {error}. Add type annotations, and a '
            "docstring with a section Args."
        ) from error
    return schema
