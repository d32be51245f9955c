"""The values of spec.framework.type: one record for each, in the folder of its framework.

known_programs.py has the programs that jobs of type command start.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlt_api.frameworks.builtin.framework import BUILTIN
from rlt_api.frameworks.command.framework import COMMAND
from rlt_api.frameworks.framework_type import FrameworkType
from rlt_api.frameworks.openrlhf.framework import OPENRLHF
from rlt_api.frameworks.roll.framework import ROLL
from rlt_api.frameworks.verl.framework import VERL
from rlt_api.spec.job_spec import RLTrainingJobSpec

FRAMEWORKS: Mapping[str, FrameworkType] = {each.name: each for each in (BUILTIN, VERL, OPENRLHF, ROLL, COMMAND)}
"""Type -> record."""


def get_framework(spec: RLTrainingJobSpec) -> FrameworkType:
    """Return the record of a spec's framework."""
    return FRAMEWORKS[spec.framework.type]
