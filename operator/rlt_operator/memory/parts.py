"""What the status of a job remembers, because a later reconciliation cannot observe it.

Each function computes one field of the status from the observation, which holds the old status, and the verdict.
`rlt_operator.reconcile.status` writes the fields beside those that follow from this observation alone. It also keeps
the resolved spec, and the latest progress and checkpoint, which it writes less often. `rlt_operator.reconcile.plan`
adds the usage to a status that is written anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rlt_api.status.job_status import FailureFinding, Pause, Phase, PreparedStep, SandboxStatus
from rlt_api.status.network import NetworkStatus
from rlt_operator.memory.attempts import count_disruptions, count_restarts, list_attempts, record_attempt
from rlt_operator.memory.clocks import (
    add_active_seconds,
    keep_completion_time,
    keep_start_time,
    run_active_clock,
    run_pending_clock,
)
from rlt_operator.memory.disruption import update_disruption
from rlt_operator.memory.preflight import keep_preflight_results, remember_passed_preflight
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

Remember = Callable[[Observed, Verdict, datetime], object]


def choose_network(observed: Observed, verdict: Verdict, now: datetime) -> NetworkStatus | None:
    """The fabric decision. A suspended job gets a new one when it resumes."""
    return None if verdict.phase == Phase.SUSPENDED else verdict.network or observed.job.status.network


def keep_pause(observed: Observed, verdict: Verdict, now: datetime) -> Pause | None:
    """The pause by a rule over the metrics, until the spec changes or the job ends."""
    job = observed.job
    if verdict.is_final:
        return None
    return job.status.pause if job.is_paused else verdict.pause


def add_prepared_step(observed: Observed, verdict: Verdict, now: datetime) -> list[PreparedStep]:
    """The steps that have succeeded. A step that runs again on a new head pod replaces its earlier entry."""
    old = observed.job.status.prepared
    done = verdict.prepared
    return [*(each for each in old if each.name != done.name), done] if done else old


def keep_findings(observed: Observed, verdict: Verdict, now: datetime) -> list[FailureFinding]:
    """The known failures of the attempt that the verdict reports, else the recorded ones."""
    return observed.job.status.findings if verdict.findings is None else list(verdict.findings)


def count_sandboxes(observed: Observed, verdict: Verdict, now: datetime) -> SandboxStatus | None:
    """The sandbox pods, with the claims of the last report."""
    pool = observed.sandboxes
    if pool is None:
        return None
    old = observed.job.status.sandboxes or SandboxStatus()
    return old.model_copy(update={"ready": pool.ready, "claimed": pool.claimed})


def keep_rollout_replicas(observed: Observed, verdict: Verdict, now: datetime) -> int | None:
    """The number of pods of a group with autoscale. The next reconciliation changes the RayCluster."""
    return verdict.rollout_replicas or observed.job.status.rollout_replicas


PARTS: dict[str, Remember] = {
    "start_time": keep_start_time,
    "pending_since": run_pending_clock,
    "active_since": run_active_clock,
    "active_seconds": add_active_seconds,
    "completion_time": keep_completion_time,
    "attempts": list_attempts,
    "restarts": count_restarts,
    "disruptions": count_disruptions,
    "current_attempt": record_attempt,
    "disruption": update_disruption,
    "preflight": keep_preflight_results,
    "preflight_passed": remember_passed_preflight,
    "prepared": add_prepared_step,
    "network": choose_network,
    "pause": keep_pause,
    "findings": keep_findings,
    "sandboxes": count_sandboxes,
    "rollout_replicas": keep_rollout_replicas,
}
"""Field of the status, and what computes its new value. `pending_since` is status.pendingSince."""
