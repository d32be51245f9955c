"""Since which version of verl a problem of its settings is an error."""

from __future__ import annotations

import re

from rlt_api.frameworks.command.problem import ALL, Problem
from rlt_api.spec.job_spec import RLTrainingJobSpec

IN_IMAGE = re.compile(r"verl[^/:@]{0,64}:[^/@]{0,32}?(\d{1,4})\.(\d{1,4})")
"""An image whose tag begins with the version of verl, such as registry.example/verl:0.9.1."""


def find_version(spec: RLTrainingJobSpec) -> str | None:
    """Return the version of verl, such as 0.9: framework.version, or the image's tag. None if it is unknown."""
    if spec.framework.type == "verl":
        return spec.framework.version or "0.9"
    found = IN_IMAGE.search(spec.cluster.image or "")
    return f"{found[1]}.{found[2]}" if found else None


def is_certain(problem: Problem, version: str | None) -> bool:
    """Whether verl of this version ends with an error."""
    if not problem.since or version is None:
        return problem.since == ALL
    if problem.since.startswith("="):
        return version == problem.since[1:]
    return [int(part) for part in version.split(".")] >= [int(part) for part in problem.since.split(".")]
