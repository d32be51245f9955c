"""spec.preflight: a Ray job that checks the cluster's nodes before the training."""

from __future__ import annotations

from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_core.children.preflight_file import get_level, has_preflight
from rlt_core.entrypoint import build_preflight_entrypoint, build_runtime_env
from rlt_operator.conditions import ConditionUpdate, is_true
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.preflight_passed import build_preflight_passed
from rlt_operator.lifecycle.restarts import restart_failed_attempt
from rlt_operator.lifecycle.shared_verdicts import fail_job
from rlt_operator.lifecycle.submission import submit
from rlt_operator.memory.preflight import has_passed_before
from rlt_operator.observation import Observed
from rlt_operator.verdict import WAITING_INTERVAL_S, Submission, Verdict

C = ConditionType


def preflight_pending(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The checks are not finished, or have failed. The status holds their results before the program is submitted."""
    job = observed.job
    ray = observed.ray
    if not has_preflight(spec) or ray is None or ray.unreachable:
        return None
    cluster = build_cluster_ready(observed, spec)
    if ray.preflight is None:
        if has_passed_before(observed, spec) and not spec.preflight.only and not observed.is_preflight_submitted:
            return None
        return _submit(observed, spec, cluster) if cluster.status == "True" else None
    passed = build_preflight_passed(observed)
    if passed.status == "False":
        releasing = {C.CLUSTER_READY: cluster, C.RECONCILING: ConditionUpdate("True", Reason.RELEASING)}
        stopped = ray.preflight.job.status == "STOPPED"
        reason = Reason.STOPPED if stopped else Reason.PREFLIGHT_FAILED
        return restart_failed_attempt(observed, fail_job(reason, passed.message, releasing, None), now)
    if passed.status == "True" and is_true(job.status, C.PREFLIGHT_PASSED) and observed.is_preflight_submitted:
        return _succeed(passed.message, cluster) if spec.preflight.only else None
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", Reason.CHECKING, passed.message)}
    requeue_after = 0.0 if passed.status == "True" else WAITING_INTERVAL_S
    return Verdict(passed.message, Phase.PROVISIONING, conditions, requeue_after=requeue_after)


def _succeed(message: str, cluster: ConditionUpdate) -> Verdict:
    """A job with preflight.only ends after the checks."""
    conditions = {
        C.CLUSTER_READY: cluster,
        C.RECONCILING: ConditionUpdate("True", Reason.RELEASING),
        C.SUCCEEDED: ConditionUpdate("True", Reason.CHECKED, message),
        C.RUNNING: ConditionUpdate("False", Reason.CHECKED, "The job has ended."),
    }
    return Verdict(message, Phase.SUCCEEDED, conditions, requeue_after=0)


def _submit(observed: Observed, spec: RLTrainingJobSpec, cluster: ConditionUpdate) -> Verdict | None:
    job = observed.job
    preflight_id = observed.preflight_id
    if preflight_id is None:
        return None
    metadata = {"rlt.dev/job": job.name, "rlt.dev/uid": job.uid}
    # Level full runs the program, which needs its packages.
    runtime_env = build_runtime_env(spec.framework) if get_level(spec) == "full" else {}
    entrypoint = build_preflight_entrypoint(job, spec)
    submission = Submission("the preflight checks", preflight_id, entrypoint, metadata, runtime_env)
    message = "The cluster is ready; the preflight checks are being submitted."
    return submit(observed, submission, cluster, ConditionUpdate("False", Reason.CHECKING, message))
