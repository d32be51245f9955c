"""rollout.engineKwargs: options that the trainer does not set itself."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, child_path, printable
from rlt_api.findings.kinds import superfluous
from rlt_api.spec.engine_options import SET_BY
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_engine_kwargs(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """engineKwargs must not contain options that the job sets by other fields, or that the trainer needs."""
    for name, value in spec.rollout.engine_kwargs.items():
        if owner := SET_BY.get(name):
            field = child_path("spec.rollout.engineKwargs", name)
            message = f"is set by the trainer ({owner})"
            yield superfluous(field, printable(str(value)), message, rule="engine-kwargs")


RULES = (validate_engine_kwargs,)
