"""A user's own functions by import path.

algorithm.advantageFunction is a function AdvantageInputs -> Advantages, algorithm.policyLossFunction one
LossInputs -> TokenLoss. Both are called where the built-in ones are.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlt_api.blocks.functions import PythonFunction
from rlt_api.training_config import FUNCTIONS_DIRECTORY


def load_user_function(function: PythonFunction, *, field: str) -> Callable[..., Any]:
    """The function that a job names, out of the image or out of a ConfigMap. ValueError as load_function."""
    folder = f"{FUNCTIONS_DIRECTORY}/{function.config_map}" if function.config_map else None
    return load_function(function.name, field=field, folder=folder)


def load_function(path: str, *, field: str, folder: str | None = None) -> Callable[..., Any]:
    """The function at "module:function". ValueError, naming the field and what was found instead, if there is none.

    folder: where the module's file is, which may import others beside it. Default: anywhere on PYTHONPATH.
    """
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f'{field}: "{path}" is not an import path of the form module:function.')
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)  # last: a file of the user's must not hide a module of Python or torch
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f'{field}: the module of "{path}" cannot be imported ({error}). Put it in the image, or in a ConfigMap '
            "that the field names."
        ) from error
    if folder is not None and not Path(module.__file__ or "").is_relative_to(folder):
        raise ValueError(
            f'{field}: "{path}" is not taken from {folder}: {module.__file__} has the same name. Rename the module.'
        )
    found = getattr(module, name, None)
    if found is None:
        functions = sorted(each for each in vars(module) if callable(vars(module)[each]) and not each.startswith("_"))
        raise ValueError(
            f'{field}: "{path}" is not there. {module_name} ({module.__file__}) has: {", ".join(functions)}.'
        )
    if not callable(found):
        raise ValueError(f'{field}: "{path}" is no function but a value of type {type(found).__name__}.')
    function: Callable[..., Any] = found
    return function
