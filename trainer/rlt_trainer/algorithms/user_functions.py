"""User-defined functions by import path.

algorithm.advantageFunction maps AdvantageInputs to Advantages, algorithm.policyLossFunction maps LossInputs to
TokenLoss. They replace the built-in functions.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlt_api.blocks.functions import PythonFunction
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY


def load_user_function(function: PythonFunction, *, field: str) -> Callable[..., Any]:
    """Load a function that a job names, from the image or from a ConfigMap. Raises ValueError as load_function does."""
    folder = f"{FUNCTIONS_DIRECTORY}/{function.config_map}" if function.config_map else None
    return load_function(function.name, field=field, folder=folder)


def load_function(path: str, *, field: str, folder: str | None = None) -> Callable[..., Any]:
    """Load the function at "module:function". Raises ValueError with the field and what was found instead.

    folder: contains the module's file and modules that it may import. Default: anywhere on PYTHONPATH.
    """
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f'{field}: "{path}" is not an import path. Use the form module:function.')
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)  # last: a user's file must not shadow a module of Python or torch
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f'{field}: the module of "{path}" cannot be imported ({error}). Put it in the image, or in a ConfigMap '
            "that the field names."
        ) from error
    if folder is not None and not Path(module.__file__ or "").is_relative_to(folder):
        raise ValueError(
            f'{field}: "{path}" is not in {folder}: {module.__file__} has the same module name. Rename the module.'
        )
    found = getattr(module, name, None)
    if found is None:
        functions = sorted(each for each in vars(module) if callable(vars(module)[each]) and not each.startswith("_"))
        raise ValueError(
            f'{field}: "{path}" does not exist. Functions in {module_name} ({module.__file__}): {", ".join(functions)}.'
        )
    if not callable(found):
        raise ValueError(f'{field}: "{path}" is a value of type {type(found).__name__}. Name a function.')
    function: Callable[..., Any] = found
    return function
