"""status.pause: the suspension of a job by a rule of spec.observability.metricRules whose action is pause.

The operator does not change spec.suspend, which belongs to the user. The pause is part of the status, and it applies
to the generation of the spec in which the rule was broken: any change of the spec resumes the job
(docs/decisions/0017-a-rule-pauses-through-the-status.md).
"""

from __future__ import annotations

from datetime import datetime

from rlt_api.blocks.metric_rules import list_rules_with_action
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.job_status import Pause
from rlt_operator.conditions import format_time
from rlt_operator.observation import Observed

PAUSED_STAGE = "training"
"""A program in another stage has no further step of training, and completes."""


def choose_pause(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Pause | None:
    """The recorded pause, or a new one if a rule with the action pause is broken."""
    job = observed.job
    ray = observed.ray
    if job.is_paused:
        return job.status.pause
    report = ray.progress if ray and ray.job and ray.job.status == "RUNNING" else None
    if spec.suspend or report is None or report.stage != PAUSED_STAGE:
        return None
    if report.total_steps and report.step >= report.total_steps:
        return None
    rules = list_rules_with_action(spec.observability.metric_rules, "pause")
    broken = next((each for each in report.broken_rules if each.rule in rules), None)
    if broken is None:
        return None
    return Pause(
        rule=broken.rule,
        step=report.step,
        evidence=broken.evidence,
        generation=job.generation,
        time=format_time(now),
    )


def describe_pause(pause: Pause, name: str) -> str:
    """Two sentences: the rule with its evidence, and how to resume."""
    return (
        f"Paused after step {pause.step} by spec.observability.metricRules.{pause.rule}: {pause.evidence}. "
        f"To resume from the checkpoint, run `rlt resume {name}`, or set spec.suspend to true and then to false."
    )
