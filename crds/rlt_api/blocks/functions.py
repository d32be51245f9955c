"""Python functions of the user's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from rlt_api.model import ApiModel, ObjectName

FunctionName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=253)
]


class PythonFunction(ApiModel):
    """A Python function of the user's own."""

    name: FunctionName
    """module:function, the module being in the image or in the ConfigMap."""
    config_map: ObjectName | None = None
    """A ConfigMap in the job's namespace whose keys are the modules' files. Default: the image has the module."""
