"""User-defined Python functions."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from rlt_api.model import ApiModel, ObjectName

FunctionName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=253)
]


class PythonFunction(ApiModel):
    """A user-defined Python function."""

    name: FunctionName
    """The function as module:function. The module is in the image or in the ConfigMap."""
    config_map: ObjectName | None = None
    """A ConfigMap in the job's namespace with one key for each file of the module. Default: the image contains the
    module."""
