"""The status of an RLTrainingJob. Conditions are the contract for programs; the phase is for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from rlt_api.model import (
    AcceleratorSeconds,
    ApiModel,
    Count,
    CutTo,
    FewNames,
    Generation,
    JsonObject,
    KeyedBy,
    Message,
    Sentence,
    StatusModel,
    Time,
    Within,
    Word,
)
from rlt_api.status.network import NetworkStatus


class Phase(StrEnum):
    """A summary of the conditions for people. Programs should use the conditions."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class Condition(ApiModel):
    """One aspect of the job's state, as in metav1.Condition of Kubernetes (KEP-1623)."""

    type: Word
    """Accepted, Admitted, FabricVerified, ClusterReady, PreflightPassed, Running, Succeeded, Failed, Promoted,
    Published, Suspended, Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: Word
    """Reason for the status, a documented constant in CamelCase."""
    message: Message
    """Description for people, with the message of the scheduler, the kubelet or the program if there is one."""
    last_transition_time: Time
    """Time of the last status change (RFC 3339, UTC)."""
    observed_generation: Generation
    """Generation of the spec that the condition is based on."""


class ProgressMetrics(ApiModel):
    """Metrics of the latest step."""

    model_config = ConfigDict(allow_inf_nan=True)  # a diverging training has such values; JSON has null instead

    reward: float | None = None
    """Mean reward of the responses (critic/rewards/mean)."""
    kl: float | None = None
    """Mean k3 estimate of the KL divergence to the reference model (actor/kl_loss)."""
    entropy: float | None = None
    """Mean entropy of the policy's next-token distribution, in nats (actor/entropy)."""
    response_length: float | None = None
    """Mean length of the responses, in tokens (response_length/mean)."""
    loss: float | None = None
    """Policy loss (actor/pg_loss)."""
    grad_norm: float | None = None
    """Norm of the gradient before clipping (actor/grad_norm)."""
    clip_fraction: float | None = None
    """Share of tokens that PPO clipped (actor/pg_clipfrac)."""


class Progress(StatusModel):
    """Progress and metrics of the training."""

    stage: Word | None = None
    """Stage of the trainer: preparing, warmup, training, evaluating (evaluateOnly), exporting or finished."""
    step: Count
    """Number of completed steps."""
    total_steps: Count
    """Total number of steps; 0 if a command does not report it."""
    percent: Annotated[int, Within(0, 100)]
    """Completed steps in percent."""
    display: Word
    """Text of the PROGRESS column: 45%, or step 12 if the total is unknown."""
    eta: Word | None = None
    """Estimated time to the end, such as 3m10s."""
    tokens_per_second: float | None = None
    """Prompt and response tokens of the latest step per second, over all workers."""
    reward: float | None = None
    """Mean reward of the latest ten steps, for the REWARD column. metrics.reward is the latest step's."""
    metrics: ProgressMetrics = ProgressMetrics()
    """Metrics of the latest step."""
    last_updated: Time
    """Time of the trainer's latest report (RFC 3339, UTC); 1970 if the program reports no valid time."""


Revision = Annotated[str, CutTo(64)]
"""A commit or a digest in hexadecimal digits."""


class CheckpointStatus(ApiModel):
    """The saved checkpoints and the exported model."""

    latest_step: Count | None = None
    """Step of the latest complete checkpoint."""
    path: Sentence | None = None
    """Path of the checkpoints folder in the pods."""
    exported_path: Sentence | None = None
    """Path of the exported model in Hugging Face format in the pods."""


class PublishedModel(ApiModel):
    """The exported model in a place of spec.publish. The condition Published has the reason of a failure."""

    url: Word
    """URL of the repository on the hub, or of the prefix in the bucket."""
    revision: Revision | None = None
    """The commit of the repository. In a bucket, the SHA-256 digest of the names and digests of the files. Absent if
    the publication has failed."""


class RayClusterStatus(ApiModel):
    """The Ray cluster of the job."""

    name: Word
    """Name of the RayCluster."""
    ready_workers: Count = 0
    """Number of ready worker pods."""
    desired_workers: Count = 0
    """Number of desired worker pods."""
    job_id: Word | None = None
    """Submission ID of the Ray job."""
    preflight_job_id: Word | None = None
    """Submission ID of the Ray job for the preflight checks."""


class SandboxStatus(ApiModel):
    """The sandbox pods of spec.rollout.multiTurn.sandbox. The operator counts them every 10 seconds."""

    ready: Count = 0
    """Number of pods that a conversation can claim."""
    claimed: Count = 0
    """Number of pods that conversations use. A pending pod is neither ready nor claimed."""
    failed: Count = 0
    """Pods that were lost, and claims without a pod, in the latest step (sandbox/failed)."""
    claim_seconds_p50: Annotated[float, Within(0, 10**9)] | None = None
    """Median time until a claim had its pod, in the latest step (sandbox/claim_seconds/p50)."""
    claim_seconds_p99: Annotated[float, Within(0, 10**9)] | None = None
    """The same: 99 % of the claims (sandbox/claim_seconds/p99)."""


class RuntimeOrigin(ApiModel):
    """The runtime that the spec was resolved with."""

    name: Word
    """Name of the RLRuntime."""
    generation: Generation
    """Generation of the RLRuntime at that time."""
    accelerators: Annotated[list[Word], CutTo(64)] = []
    """Resources of the accelerators in its node pools, such as nvidia.com/gpu."""


class RuntimeSnapshot(ApiModel):
    """An RLRuntime."""

    name: Word
    """Name of the RLRuntime."""
    generation: Generation
    """Generation of the RLRuntime."""
    spec: JsonObject
    """Spec of the RLRuntime."""


class PreflightCheck(ApiModel):
    """The result of a preflight check."""

    name: Word
    """Name of the check, as in docs/preflight.md."""
    stage: Word | None = None
    """network, services, data or training."""
    result: Literal["passed", "warned", "failed"]
    """The training does not start if a check failed."""
    value: Word | None = None
    """The measured value with its unit; the worst one of several pods."""
    threshold: Word | None = None
    """The limit that the value is compared with."""
    seconds: Annotated[float, Within(0, 2**31 - 1)] | None = None
    """Duration of the measurement. Checks can share one."""
    pods: FewNames = []
    """The affected pods. Empty means all pods."""
    nodes: FewNames = []
    """The nodes of these pods."""
    message: Sentence
    """Description of the result."""
    remedy: Sentence | None = None
    """The fix."""


class PassedPreflight(ApiModel):
    """The nodes and images that passed the preflight checks. A Ray cluster with the same ones is not checked again."""

    level: Word
    """Level of the checks: basic or full."""
    nodes: Annotated[list[Word], CutTo(256)]
    """The nodes of the pods."""
    images: Annotated[list[Word], CutTo(16)]
    """Digests of the pods' images."""


class PreparedStep(ApiModel):
    """A step of spec.framework.prepare that has succeeded."""

    name: Word
    """Name of the step."""
    head_pod_uid: Word
    """UID of the head pod that ran it. Without storage.claimName, its files exist on that pod alone."""
    completion_time: Time
    """Time when the operator observed its end (RFC 3339, UTC)."""


class Disruption(ApiModel):
    """A pod of the current Ray cluster that Kubernetes ends for a cause outside of the job."""

    ray_cluster_uid: Word
    """UID of the RayCluster."""
    reason: Word
    """Reason of the pod's condition DisruptionTarget, the reason of the kubelet, PodDeleted, NodeDeleted,
    NodeNotReady, or the taint of the node."""
    worker_group: Word | None = None
    """The worker group, if the training continues without the pod. The entry is removed when the group is complete
    again."""
    message: Sentence
    """The pod, its node and the message of the kubelet."""
    time: Time
    """Time when the operator observed it (RFC 3339, UTC)."""


Execution = Annotated[int, Within(1, 2**31 - 1)]
"""A number that counts from 1."""


class Attempt(ApiModel):
    """An attempt that failed or was disrupted (spec.failurePolicy)."""

    number: Count
    """Number of the attempt, from 1."""
    ray_cluster_uid: Word
    """UID of its RayCluster, which identifies the attempt together with `execution`."""
    execution: Execution = 1
    """Number of the program's execution on this RayCluster, from 1 (spec.failurePolicy.restartPolicy)."""
    start_time: Time | None = None
    """Time when the training started (RFC 3339, UTC). Absent if it did not start."""
    completion_time: Time
    """Time when the operator observed the end of the attempt (RFC 3339, UTC)."""
    reason: Word
    """Reason of the failure, as in the condition Failed: Disrupted for a disruption."""
    disruption: Word | None = None
    """Reason of the disruption, as in status.disruption. Absent if the attempt failed by itself."""
    message: Sentence
    """Short description of the failure."""
    step: Count | None = None
    """Last completed step, if known."""
    node_at_fault: Word | None = None
    """Name of the node that caused the failure. Absent if there is no evidence."""
    evidence: Sentence | None = None
    """Evidence that the node caused the failure."""
    finding: Annotated[str, CutTo(64)] | None = None
    """Code of the known failure that explains it best, as in status.findings. Absent with restartPolicy Recreate."""


class FailureFinding(ApiModel):
    """A known failure that the evidence of an attempt shows. docs/troubleshooting/index.md lists them."""

    code: Word
    """Name of the failure in CamelCase, such as GpuOutOfMemory."""
    severity: Word
    """error, warning, or wrapper: a message that another process failed."""
    message: Sentence
    """What happened, and why."""
    pod: Word | None = None
    """Name of the pod that printed the evidence, if known."""
    node: Word | None = None
    """Name of the pod's node."""
    rank: Count | None = None
    """Rank of the process that printed the evidence, if known."""
    evidence: Sentence
    """Line of the output, of a container's end or of an event. Secrets are masked."""
    remedy: Sentence
    """What to do."""
    source: Sentence
    """URL of the explanation."""


class StopRequest(ApiModel):
    """A request to stop the program. The operator records it, and sends it to Ray on a later reconciliation."""

    reason: Word
    """SuspendRequested, Cancelled, DeadlineExceeded, NoProgress or Disrupted (spec.failurePolicy.onDrain, or fewer than
    minReplicas)."""
    time: Time
    """Time of the request (RFC 3339, UTC). The program has RAY_JOB_STOP_WAIT_TIME_S from then on to save and exit."""


class AttemptProgress(ApiModel):
    """The latest progress of the program, for spec.failurePolicy.progressDeadlineSeconds."""

    time: Time
    """Time when the operator observed it, or the start of the program (RFC 3339, UTC)."""
    step: Count | None = None
    """Number of completed steps. Absent before the first report."""
    reported_time: Time | None = None
    """Time of the report by the clock of the program. Absent before the first report."""
    deadline_seconds: Count | None = None
    """Maximum time until the next progress. Absent if there is no deadline."""


class StackDump(ApiModel):
    """A Ray job that writes the stacks of all processes, because the program makes no progress."""

    time: Time
    """Time when the operator decided it (RFC 3339, UTC). The attempt ends whether the Ray job succeeds or not."""
    result: Sentence | None = None
    """Where the stacks are, or why there are none. Absent until it is known."""


class CurrentAttempt(ApiModel):
    """State of the current RayCluster that the operator records before it acts on it. Times are RFC 3339, UTC."""

    ray_cluster_uid: Word
    """UID of the RayCluster, which identifies the attempt together with `execution`."""
    execution: Execution = 1
    """Number of the program's execution on this RayCluster, from 1. The IDs of its Ray jobs contain it from 2 on."""
    cluster_resumed_time: Time | None = None
    """Time when the latest suspension of the RayCluster ended, which identifies its admission by Kueue."""
    head_pod_uid: Word | None = None
    """UID of the head pod that the Ray jobs are submitted to. It is fixed when Ray has accepted the first one."""
    prepare_step: Word | None = None
    """The last step of spec.framework.prepare whose Ray job the head was seen with."""
    preflight_accepted_time: Time | None = None
    """Time when the head was first seen with the Ray job of the preflight checks."""
    accepted_time: Time | None = None
    """Time when the head was first seen with the Ray job of the program."""
    progress: AttemptProgress | None = None
    """The latest progress of the program. Recorded when status.progress is, and 30 s later at the latest."""
    stacks: StackDump | None = None
    """The stacks of a program without progress."""
    stop: StopRequest | None = None
    """The request to stop the program."""


MAX_USAGE_DAYS = 31
"""Days of status.usage.days: the bills of a month."""


class UsageParts(ApiModel):
    """Accelerator seconds, divided by what the accelerators did."""

    queued: AcceleratorSeconds = 0
    """Held while other workers of the Ray cluster waited for a node. A job that holds no accelerator counts nothing."""
    starting: AcceleratorSeconds = 0
    """Held from the time when all workers had a node until the training began: images, Ray, preflight checks, prepare
    steps, and the stage preparing of the trainer."""
    generate: AcceleratorSeconds = 0
    """Responses of the training, with their rewards as far as they are part of the generation."""
    update: AcceleratorSeconds = 0
    """Updates, log-probabilities, values, and supervised steps."""
    sync: AcceleratorSeconds = 0
    """Weights from the trainer to the rollout engines."""
    evaluate: AcceleratorSeconds = 0
    """Validations."""
    idle: AcceleratorSeconds = 0
    """Held and unused: accelerators that wait for others, for a checkpoint or an export, and after the program."""
    lost: AcceleratorSeconds = 0
    """Training after the latest complete checkpoint of an attempt that ended early. A restart or resumption repeats
    it."""
    unreported: AcceleratorSeconds = 0
    """A running program without a report: its current step, and programs that do not report their phases."""


class RunUsage(ApiModel):
    """The part of status.usage that belongs to the program that runs."""

    start_time: Time
    """Time when the training of this attempt began (RFC 3339, UTC)."""
    at_risk: AcceleratorSeconds = 0
    """Accelerator seconds that are lost if the attempt ends early now."""
    by: UsageParts = UsageParts()
    """The program's part of usage.by. Each report of the program divides it again."""


class UsageDay(ApiModel):
    """The part of status.usage of a day."""

    day: Word
    """The day in UTC, such as 2026-01-02."""
    by: UsageParts
    """The parts of the day. They change until the program that ran on it ends."""


class Usage(ApiModel):
    """The accelerators that the pods of the job held, times the seconds that they held them: from the time when a pod
    has a node until it ends. Written with other changes of the status, so that a running job is a few seconds behind,
    or one report of its program."""

    accelerator_seconds: AcceleratorSeconds
    """Total of all parts. 3600 are an accelerator hour."""
    by: UsageParts
    """The parts of the total."""
    days: Annotated[list[UsageDay], CutTo(MAX_USAGE_DAYS)] = []
    """The parts of each of the latest 31 days on which the pods held accelerators, in order. Of a job that has more
    days, the first entry has everything up to the end of its day."""
    observed_time: Time
    """Time until which the usage is counted (RFC 3339, UTC)."""
    accelerators: Count
    """Number of accelerators that the pods held at that time."""
    state: Literal["queued", "starting", "running", "idle"] | None = None
    """What these accelerators did at that time. Absent if the pods held none."""
    run: RunUsage | None = None
    """The program that runs, whose phases are known from its reports."""


class Pause(ApiModel):
    """A suspension of the job by a rule of spec.observability.metricRules."""

    rule: Word
    """The rule, such as klRunaway."""
    step: Count
    """Number of completed steps when the operator observed the broken rule."""
    evidence: Sentence
    """The metric and its value."""
    generation: Generation
    """Generation of the spec that the pause applies to. Any change of the spec resumes the job."""
    time: Time
    """Time when the operator observed the broken rule (RFC 3339, UTC)."""


class RLTrainingJobStatus(StatusModel):
    """The observed state of the job."""

    observed_generation: Generation | None = None
    """Generation of the spec that the status is based on."""
    phase: Phase | None = None
    """Summary of the conditions for people: Pending, Provisioning, Running, Succeeded, Failed or Suspended."""
    message: Message | None = None
    """Reason for the phase."""
    conditions: Annotated[list[Condition], CutTo(24), KeyedBy("type", checked=False)] = []
    """Conditions for programs, one entry for each type."""
    progress: Progress | None = None
    """Progress and metrics of the training."""
    checkpoint: CheckpointStatus | None = None
    """The saved checkpoints and the exported model."""
    published: Annotated[list[PublishedModel], CutTo(4)] = []
    """The results of spec.publish, in its order."""
    ray_cluster: RayClusterStatus | None = None
    """The Ray cluster, while it exists."""
    sandboxes: SandboxStatus | None = None
    """The sandbox pods, while the Ray cluster exists."""
    rollout_replicas: Count | None = None
    """Number of pods of a group with autoscale, from its first change on. spec.rolloutReplicas has precedence."""
    restarts: Count | None = None
    """Number of new attempts after a failure."""
    disruptions: Count | None = None
    """Number of new attempts after a disruption."""
    attempts: Annotated[list[Attempt], CutTo(32), KeyedBy("number", checked=False)] = []
    """The latest attempts that failed or were disrupted. Absent for the only attempt of a job without restarts."""
    findings: Annotated[list[FailureFinding], CutTo(8), KeyedBy("code", checked=False)] = []
    """Known failures of the latest attempt that ended early, the best explanation first; before the first attempt, why
    the cluster is not ready; while the program runs, problems of its nodes and sandbox pods, and the rules of
    spec.observability.metricRules that are broken."""
    pause: Pause | None = None
    """Why a rule over the metrics has suspended the job. Absent once it is resumed."""
    current_attempt: CurrentAttempt | None = None
    """State of the current RayCluster, while it or one of its pods exists."""
    disruption: Disruption | None = None
    """The first disruption of the current Ray cluster."""
    resolved_spec: Annotated[str, Field(max_length=2**20)] | None = None
    """The spec at the time of acceptance, merged with the runtime, with all defaults, as compact JSON: one line of
    `kubectl describe`. Every attempt uses it: a changed runtime and an upgrade of the operator do not affect this
    job."""
    runtime: RuntimeOrigin | None = None
    """The runtime that resolvedSpec contains."""
    prepared: Annotated[list[PreparedStep], CutTo(16), KeyedBy("name", checked=False)] = []
    """The steps of spec.framework.prepare that have succeeded."""
    network: NetworkStatus | None = None
    """The decision about fabric and accelerators. The Ray cluster is created from it."""
    preflight: Annotated[list[PreflightCheck], CutTo(34)] = []
    """Results of the preflight checks on the current or the latest Ray cluster."""
    preflight_passed: PassedPreflight | None = None
    """The nodes and images that passed the preflight checks, for later attempts."""
    model: Sentence | None = None
    """The trained model, for the MODEL column."""
    algorithm: Sentence | None = None
    """The advantage estimator or the program of the command, for the ALGORITHM column."""
    gpus: Count | None = None
    """Number of requested accelerators over all workers."""
    usage: Usage | None = None
    """What the job has used: accelerator seconds, in total and by phase. Absent until a pod with accelerators has a
    node."""
    start_time: Time | None = None
    """Time when the training first started (RFC 3339, UTC)."""
    pending_since: Time | None = None
    """Time since when the job waits for its training to start, for spec.pendingDeadlineSeconds (RFC 3339, UTC)."""
    active_since: Time | None = None
    """Time since when the training runs without a suspension or restart, for spec.activeDeadlineSeconds (RFC 3339,
    UTC)."""
    active_seconds: Count | None = None
    """Run time of the training before activeSince, for spec.activeDeadlineSeconds."""
    completion_time: Time | None = None
    """Time when the operator recorded the end of the job (RFC 3339, UTC). ttlSecondsAfterFinished counts from then
    on."""
