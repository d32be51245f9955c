"""The conditions that no step decides, because they depend on their own observations alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.validation.unlikely_values import explain_large_model_on_cpus
from rlt_core.children.preflight_file import has_preflight
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.lifecycle.admission import build_admitted, build_fabric_verified
from rlt_operator.lifecycle.preflight_passed import build_preflight_passed
from rlt_operator.lifecycle.promoted import build_promoted, list_gates
from rlt_operator.lifecycle.published import build_published
from rlt_operator.memory.parts import choose_network
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

C = ConditionType


def set_independent_conditions(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Add Admitted, PreflightPassed, Promoted, Published and FabricVerified, if they apply to the job, and to Accepted
    a note about a job on CPUs that is meant for GPUs."""
    job = observed.job
    conditions = dict[ConditionType, ConditionUpdate]()
    on_cpus = explain_large_model_on_cpus(job.spec) if job.spec is not None else None
    if on_cpus and C.ACCEPTED not in verdict.conditions:
        conditions[C.ACCEPTED] = ConditionUpdate("True", Reason.VALID, f"The spec is valid. Note: {on_cpus}.")
    if job.queue is not None:
        conditions[C.ADMITTED] = build_admitted(observed)
    if job.spec is not None and has_preflight(job.spec):
        conditions[C.PREFLIGHT_PASSED] = build_preflight_passed(observed)
    if job.spec is not None and (suites := list_gates(job.spec)):
        conditions[C.PROMOTED] = build_promoted(job.status, verdict, suites)
    if job.spec is not None and job.spec.publish:
        conditions[C.PUBLISHED] = build_published(job.status, verdict, len(job.spec.publish))
    if (network := choose_network(observed, verdict, now)) is not None:
        conditions[C.FABRIC_VERIFIED] = build_fabric_verified(network)
    return replace(verdict, conditions={**verdict.conditions, **conditions})
