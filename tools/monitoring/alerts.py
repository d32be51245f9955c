"""The alerts and their runbooks: the source of charts/rlt-operator/alerts/rules.yaml and docs/runbooks.md.

Alerts of a job have its name in the label `job`, also those from series of the operator, which have it in `name`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PAGE = "docs/runbooks.md"
"""The page of the runbooks. The chart replaces it by the value alerts.runbooks."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert and its runbook."""

    name: str
    group: Literal["jobs", "learning", "operator"]
    severity: Literal["warning", "critical"]
    expression: str
    lasting: str
    """How long the expression is true before the alert fires."""
    summary: str
    """Title of a notification."""
    meaning: str
    """What the expression measures, and why it matters."""
    inspect: tuple[str, ...]
    """Where to find the cause."""
    act: tuple[str, ...]
    """What to change for which cause."""


RUNNING = 'max by (namespace, job) (label_replace(rlt_job_phase{phase="Running"}, "job", "$1", "name", "(.+)")) == 1'
SINCE_PROGRESS = "(time() - max by (namespace, job) (rlt_trainer_last_step_timestamp_seconds))"
IN_TRAINING = 'max by (namespace, job) (rlt_trainer_stage{stage="training"}) == 1'
GPU_USE = (
    'max by (namespace, pod) (label_replace(label_replace(max_over_time(DCGM_FI_DEV_GPU_UTIL[15m]), "pod", "$1", '
    '"exported_pod", "(.+)"), "namespace", "$1", "exported_namespace", "(.+)"))'
)
"""Without honor_labels, Prometheus renames the labels of the exporter."""
RAY_GPU_USE = "max by (namespace, job, pod) (max_over_time(ray_node_gpus_utilization[15m]))"
POD_OF_JOB = 'max by (namespace, job, pod) (label_replace(rlt_job_pod_info, "job", "$1", "name", "(.+)"))'
IDLE_SECONDS = (
    'sum by (namespace, name) (max by (namespace, name, role) (delta(rlt_job_accelerator_seconds{phase="idle"}[1h])))'
)
HELD_SECONDS = (
    "sum by (namespace, name) (max by (namespace, name, role, phase) (delta(rlt_job_accelerator_seconds[1h]))) > 1800"
)
"""At least half an accelerator over the hour: a job that has just started has no meaningful share."""
SANDBOXES = 'max by (namespace, job) (label_replace(rlt_job_sandboxes{{state="{}"}}, "job", "$1", "name", "(.+)"))'
"""Sandbox pods of a job in a state."""
IDLE_SHARE = f'label_replace({IDLE_SECONDS} / ({HELD_SECONDS}), "job", "$1", "name", "(.+)")'


def _mean(metric: str, window: str = "[10m]", offset: str = "") -> str:
    return f"max by (namespace, job) (avg_over_time({metric}{window}{offset}))"


def _kl_grows(metric: str) -> str:
    return f"({_mean(metric)} > 0.5 and {_mean(metric)} > 4 * {_mean(metric, offset=' offset 30m')})"


def _not_finite(metric: str) -> str:
    return f"max by (namespace, job) ({metric} != {metric} or abs({metric}) == Inf)"


ALERTS = (
    Alert(
        name="RLTJobNoHeartbeat",
        group="jobs",
        severity="critical",
        expression=f"{RUNNING} unless on (namespace, job) rlt_trainer_last_step_timestamp_seconds",
        lasting="10m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: no metrics of the driver",
        meaning="The job is Running, and Prometheus has no metrics of its driver.",
        inspect=(
            "`rlt status NAME`: if the step increases, the driver runs and Prometheus does not scrape it.",
            "`kubectl get pods -l rlt.dev/job=NAME`: the head pod must be Running.",
            "The targets of Prometheus: port 8090 of the head pod, by annotation or PodMonitor.",
        ),
        act=(
            "Not scraped: enable `metrics.podMonitor`, or add the namespace of Prometheus to "
            "`networkPolicy.metricsNamespaces`.",
            "The head does not answer: `rlt logs NAME`, then the condition Running in `kubectl describe rltj NAME`.",
        ),
    ),
    Alert(
        name="RLTJobStalled",
        group="jobs",
        severity="critical",
        expression=f"{SINCE_PROGRESS} > 900 and {SINCE_PROGRESS} > 10 * max by (namespace, job) "
        f"(rlt_trainer_step_duration_seconds) and {IN_TRAINING}",
        lasting="1m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: no step for {{ $value | humanizeDuration }}",
        meaning="The training has completed no step for 15 minutes and ten times the duration of its latest step.",
        inspect=(
            "`rlt logs NAME`: the last lines of the driver and of the ranks.",
            "`failurePolicy.progressDeadlineSeconds`: after it, the operator writes the stacks of all processes to the "
            "run directory and ends the attempt.",
            "GPU utilization of all workers: one at 0 % while the others are at 100 % did not join a collective.",
        ),
        act=(
            "Wait for the deadline: the message of the attempt names the ranks whose stacks differ.",
            "A slow reward or judge: lower its timeout. A hang in NCCL: see [networking](networking.md).",
        ),
    ),
    Alert(
        name="RLTJobFailingRetries",
        group="jobs",
        severity="warning",
        expression="max by (namespace, job) (label_replace(rlt_job_restarts - min_over_time(rlt_job_restarts[1h]), "
        '"job", "$1", "name", "(.+)")) >= 3',
        lasting="0m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: {{ $value }} restarts in an hour",
        meaning="Three or more attempts of the job failed within an hour. The next one probably fails, too.",
        inspect=(
            "`kubectl get rltj NAME -o yaml`: `status.attempts` has reason, step and node of each attempt.",
            "`status.findings` and `rlt diagnose NAME`: the known failure, its evidence and its remedy.",
        ),
        act=(
            "The same node each time: cordon it. The same step each time: the cause is in data, rewards or memory.",
            "Suspend the job until the cause is corrected: `rlt suspend NAME`.",
        ),
    ),
    Alert(
        name="RLTCheckpointTooOld",
        group="jobs",
        severity="warning",
        expression="(time() - max by (namespace, job) (rlt_trainer_latest_checkpoint_timestamp_seconds)) > 4 * 3600 "
        f"and {IN_TRAINING}",
        lasting="5m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: no checkpoint for {{ $value | humanizeDuration }}",
        meaning="A failure now loses more than four hours of training.",
        inspect=(
            "The condition Running of the job: reason CheckpointFailed has the error of the latest save.",
            "`checkpoint.saveFreq` times the duration of a step.",
        ),
        act=(
            "Failed saves: free space on the volume, or correct its permissions.",
            "Rare saves: reduce `checkpoint.saveFreq` in the next job.",
        ),
    ),
    Alert(
        name="RLTGpuIdle",
        group="jobs",
        severity="warning",
        expression=f"(({POD_OF_JOB} * 0 + on (namespace, pod) group_left () {GPU_USE}) < 5) "
        f"and on (namespace, job) ({RUNNING}) or {RAY_GPU_USE} < 5 and on (namespace, job) ({RUNNING})",
        lasting="15m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: the GPUs of {{ $labels.pod }} are idle",
        meaning="No GPU of a running job's pod was used more than 5 % for 30 minutes. It requires the "
        "metrics of Ray, or NVIDIA's dcgm-exporter with the labels of pods.",
        inspect=(
            "The dashboard rlt / Run, step time: which phase all others wait for.",
            "`rlt status NAME`: a job in the stage preparing downloads or loads a model.",
            "`rlt logs NAME`: the pod may not have joined Ray.",
        ),
        act=(
            "Rewards or agents take most of the step: more `workers` for them, or `rollout.staleness`.",
            "Rollout workers wait for training, or the reverse: move devices from one group to the other.",
        ),
    ),
    Alert(
        name="RLTIdleAccelerators",
        group="jobs",
        severity="warning",
        expression=f"max by (namespace, job) ({IDLE_SHARE}) > 0.5",
        lasting="30m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: {{ $value | humanizePercentage }} of the accelerator time "
        "is idle",
        meaning="More than half of the accelerator seconds of the last hour were idle: held by pods and not used for "
        "generation, updates, weight syncs or validations.",
        inspect=(
            "`rlt status NAME` and `rlt usage`: the share of each phase.",
            "The dashboard rlt / Run, step time: what the driver waits for.",
            "A job that has failed: `failurePolicy.keepClusterSeconds` keeps its accelerators.",
        ),
        act=(
            "`rollout.mode: separate`: set `rollout.staleness`, so that generation and training overlap, or move "
            "workers to the group that the other one waits for.",
            "Rewards, judges or agents take the time: raise their concurrency, or give them more CPUs.",
            "Checkpoints take the time: raise `checkpoint.saveFreq` in the next job.",
        ),
    ),
    Alert(
        name="RLTSandboxPoolExhausted",
        group="jobs",
        severity="warning",
        expression=f"{SANDBOXES.format('ready')} == 0 and {SANDBOXES.format('missing')} > "
        f"{SANDBOXES.format('claimed')} and on (namespace, job) ({RUNNING})",
        lasting="10m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: no sandbox pod is free",
        meaning="No sandbox pod is free, and more pods are missing from poolSize than conversations use: pods do not "
        "start, or start more slowly than conversations end.",
        inspect=(
            "`status.findings`: image, scheduler, quota, or pods that fail at their start.",
            "`kubectl get pods -l rlt.dev/sandbox-of=NAME`, and `kubectl describe job` for NAME-sandboxes-…: events.",
            "With `provider: AgentSandbox`: `kubectl get sandboxes`.",
            "With Kueue: `kubectl get workloads`. The pool waits in the queue as a separate workload.",
        ),
        act=(
            "Follow the remedy of the finding, or lower `rollout.multiTurn.sandbox.poolSize` to what nodes and quota "
            "permit.",
            "Failed pods: the Job controller waits up to ten minutes after several. Their cause is in their log.",
        ),
    ),
    Alert(
        name="RLTSandboxClaimsSlow",
        group="jobs",
        severity="warning",
        expression="max by (namespace, job) (rlt_trainer_sandbox_claim_seconds_p99) > 10",
        lasting="15m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: 1 % of the sandbox claims take "
        "{{ $value | humanizeDuration }} or more",
        meaning="The slowest claims of a step wait more than 10 seconds for a sandbox pod, without the time in which "
        "all of poolSize is in use. A pod that is ready is claimed in less than a second.",
        inspect=(
            "The dashboard rlt / Run, Sandboxes: pods that are missing while claims wait.",
            "`kubectl get pods -l rlt.dev/sandbox-of=NAME`: the time until a new pod is ready.",
            "The lifetime of the cluster's DNS cache: it delays new pods.",
        ),
        act=(
            "Pods start slowly: use an image that the nodes have, and nodes with room (`sandbox.nodeSelector`).",
            "Conversations are short: raise `rollout.multiTurn.sandbox.poolSize`, so that free pods remain.",
        ),
    ),
    Alert(
        name="RLTSandboxFailures",
        group="learning",
        severity="warning",
        expression="max by (namespace, job) (rlt_trainer_sandbox_failures / "
        "(rlt_trainer_sandbox_claims + rlt_trainer_sandbox_failures)) > 0.05",
        lasting="5m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: {{ $value | humanizePercentage }} of the sandboxes fail",
        meaning="More than 5 % of the sandboxes of a step were lost or not found in time. Their conversations are left "
        "out of the update.",
        inspect=(
            "`kubectl get events`: evictions, nodes that are not ready, containers that are OOMKilled.",
            "`rlt metrics NAME sandbox/failed sandbox/claims`: since when.",
            "`rlt rollouts NAME`: a policy may exceed the memory or disk of its pod on purpose.",
        ),
        act=(
            "OOMKilled or evicted for its disk: raise `memory` or `disk` of `rollout.multiTurn.sandbox`.",
            "Claims without a pod: see RLTSandboxPoolExhausted. Lost nodes: use nodes that are not preempted.",
        ),
    ),
    Alert(
        name="RLTRewardErrors",
        group="learning",
        severity="warning",
        expression="max by (namespace, job) (rlt_trainer_reward_failures / rlt_trainer_responses) > 0.05",
        lasting="5m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: {{ $value | humanizePercentage }} of the rewards fail",
        meaning="More than 5 % of the responses of a step have no reward. They are left out of the update.",
        inspect=(
            "`rlt_trainer_reward_failures_by_reason`: which reward fails, and why.",
            "`rlt logs NAME`: the first error of each reason.",
        ),
        act=("Timeouts of a judge: raise its timeout or its concurrency. Exceptions of a function: correct it.",),
    ),
    Alert(
        name="RLTMetricNotFinite",
        group="learning",
        severity="critical",
        expression=" or ".join(
            map(_not_finite, ("rlt_trainer_policy_loss", "rlt_trainer_grad_norm", "rlt_trainer_reward_mean"))
        )
        + " or max by (namespace, job) (rlt_trainer_skipped_updates > 0)",
        lasting="0m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: loss, gradient or reward is not finite",
        meaning="Loss, gradient norm or mean reward is NaN or infinite, or optimizer steps were skipped because of it.",
        inspect=(
            "`rlt metrics NAME actor/grad_norm --plot`: a peak before it is a divergence.",
            "`rlt rollouts NAME`: responses and rewards of the step.",
        ),
        act=(
            "Divergence: lower `training.learningRate`, or `training.gradClip`; resume from an earlier checkpoint.",
            "A single reward is not finite: correct the function.",
        ),
    ),
    Alert(
        name="RLTKlRunaway",
        group="learning",
        severity="warning",
        expression=f"{_kl_grows('rlt_trainer_kl')} or {_kl_grows('rlt_trainer_reward_kl')}",
        lasting="10m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: KL divergence is {{ $value | humanize }} nats and grows",
        meaning="The KL divergence to the reference model is above 0.5 nats per token, four times as high as "
        "half an hour ago. The policy moves away from the reference, often towards text with a high reward and a low "
        "quality.",
        inspect=(
            "`rlt rollouts NAME`: responses with a high reward that are not better.",
            "`rlt metrics NAME actor/kl_loss actor/grad_norm --plot`.",
        ),
        act=(
            "Raise `algorithm.klLossCoef`, or lower `training.learningRate`.",
            "Correct the reward if it prefers such text, and start from an earlier checkpoint.",
        ),
    ),
    Alert(
        name="RLTEntropyCollapse",
        group="learning",
        severity="warning",
        expression=f"{_mean('rlt_trainer_entropy')} < 0.2 * max by (namespace, job) "
        "(max_over_time(rlt_trainer_entropy[1d])) and max by (namespace, job) (deriv(rlt_trainer_entropy[30m])) < 0",
        lasting="10m",
        summary="{{ $labels.namespace }}/{{ $labels.job }}: entropy fell to {{ $value | humanize }} nats",
        meaning="The policy's entropy is below a fifth of its maximum over the last day and falls. The responses to "
        "a prompt become equal, and equal rewards have no gradient. It is expected if the task is solved.",
        inspect=(
            "Mean reward: if it is at its maximum, the policy has learned the task.",
            "`rlt rollouts NAME`: responses of one group that are equal.",
        ),
        act=("Raise `rollout.temperature`, `algorithm.entropyCoeff` or `algorithm.clipRatioHigh`.",),
    ),
    Alert(
        name="RLTOperatorNotReconciling",
        group="operator",
        severity="critical",
        expression="max by (namespace, pod) (rlt_operator_queue_oldest_seconds) > 300 or "
        "max by (namespace, pod) (increase(rlt_operator_unreported_failures_total[10m])) > 0",
        lasting="5m",
        summary="The operator pod {{ $labels.pod }} does not reconcile all jobs",
        meaning="A job was woken more than five minutes ago, and no reconciliation of it has completed since; or "
        "failures could not be written to the status of a job.",
        inspect=(
            "`kubectl logs` of the leader: exceptions, and requests that fail.",
            "The dashboard rlt / Operator: errors, latency of API requests and of Ray polls, delay of the event loop.",
        ),
        act=(
            "The API server rejects requests: correct RBAC or quotas ([rejected requests](rejections.md)).",
            "An exception of one job: delete or suspend the job, and report the log.",
            "Delay of the event loop: raise `resources.requests.cpu`.",
        ),
    ),
    Alert(
        name="RLTOperatorNoLeader",
        group="operator",
        severity="critical",
        expression="(sum(rlt_operator_leader) or vector(0)) < (max(rlt_operator_shards) or vector(1))",
        lasting="2m",
        summary="No operator leads, or not one for each shard: jobs are not reconciled",
        meaning="No replica holds the Lease, or the Lease of a shard, or Prometheus does not scrape it. Running jobs "
        "continue; nothing else changes.",
        inspect=(
            "`kubectl -n NAMESPACE get pods,lease`: pods that are not Ready, and the holders of the Leases.",
            "The targets of Prometheus: port 8080 of the operator's pods, and the next ones with shards.",
        ),
        act=(
            "Pods crash: `kubectl logs --previous`. CRDs too old: apply the chart's CRDs.",
            "No permission for the Lease: install the chart's Role again.",
        ),
    ),
    Alert(
        name="RLTWebhookCertificateEnding",
        group="operator",
        severity="warning",
        expression="(max by (namespace, pod) (rlt_operator_webhook_certificate_expiry_timestamp_seconds) > 0) - time() "
        "< 7 * 86400",
        lasting="1h",
        summary="The webhook's certificate of {{ $labels.pod }} expires in {{ $value | humanizeDuration }}",
        meaning="The operator renews its certificate 30 days before its end, cert-manager by its own rules. "
        "After the end, the API server cannot call the webhook (`webhook.failurePolicy`).",
        inspect=(
            "Logs of the leader and of the webhook: `cannot reconcile the webhook's certificate`.",
            "With cert-manager: `kubectl describe certificate`.",
        ),
        act=("Correct the error in the log. Then delete the Secret: the operator creates a certificate.",),
    ),
)
