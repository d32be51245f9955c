"""What a lifecycle step decides about a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Attempt, FailureFinding, Pause, Phase, PreparedStep, StackDump, StopRequest
from rlt_api.status.network import NetworkStatus
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.job import Manifest
from rlt_operator.conditions import ConditionUpdate, ConditionUpdates
from rlt_operator.diagnosis.disruption import FoundDisruption
from rlt_operator.scaling import Scaling

WAITING_INTERVAL_S = 5.0
"""Requeue interval while the cluster starts or terminates. A change of its objects also wakes the job."""


@dataclass(frozen=True)
class Submission:
    """A Ray job to submit."""

    name: str
    """What it runs, for messages."""
    id: str
    entrypoint: str
    """A command line. Ray runs it in a shell."""
    metadata: dict[str, str] = field(default_factory=dict)
    runtime_env: dict[str, object] = field(default_factory=dict)
    """Ray's runtime_env of the job and its actors."""


@dataclass(frozen=True)
class Verdict:
    """What one step decides about a job. `Plan` documents the fields that have the same name there."""

    message: str
    phase: Phase | None = None
    """None keeps the phase."""
    conditions: ConditionUpdates = field(default_factory=dict)
    """A condition that is not listed gets its default."""
    network: NetworkStatus | None = None
    """The fabric decision. None keeps the one in the status."""
    dry_run: tuple[TemplateDryRun, ...] = ()
    apply: tuple[Manifest, ...] = ()
    stop: str | None = None
    stop_request: StopRequest | None = None
    """The request to stop the program to record. None keeps the recorded one."""
    pause: Pause | None = None
    """The pause to record with the request to stop."""
    stacks: StackDump | None = None
    """The stacks to record. None keeps the recorded ones."""
    prepared: PreparedStep | None = None
    """The step that has succeeded, to record."""
    delete_cluster: str | None = None
    scale: Scaling | None = None
    rollout_replicas: int | None = None
    """The number of pods of a group with autoscale, to record. None keeps the recorded one."""
    submit: Submission | None = None
    delete_job: bool = False
    report: ProgressReport | None = None
    attempt: Attempt | None = None
    """The failed attempt to record, or what is known about it since."""
    execution: int | None = None
    """Number of the execution that is current from now on, to record. None keeps the recorded one."""
    disruption: FoundDisruption | None = None
    """The disruption of the attempt that the operator itself begins, to record."""
    findings: tuple[FailureFinding, ...] | None = None
    """The known failures of the attempt. None keeps the recorded ones."""
    requeue_after: float | None = WAITING_INTERVAL_S
    is_passing: bool = False
    """Whether the verdict only counts the pods that start: another one follows within seconds."""

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.is_true(ConditionType.SUCCEEDED) or self.is_true(ConditionType.FAILED)

    @property
    def acts(self) -> bool:
        """Whether the verdict changes anything besides the status."""
        return bool(self.apply or self.scale or self.submit or self.stop or self.delete_cluster or self.delete_job)

    def is_true(self, type: ConditionType) -> bool:
        """Whether the condition becomes or stays True."""
        update = self.conditions.get(type)
        return update is not None and update.status == "True"


SETTLED = ConditionUpdate("False", Reason.SETTLED)
"""Reconciling, when there is nothing to do."""
