"""spec.preflight, spec.failurePolicy, spec.observability and spec.security."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.framework import Argument
from rlt_api.blocks.metric_rules import MetricRules
from rlt_api.blocks.resources import KeyReference
from rlt_api.model import AbsolutePath, ApiModel, Positive, Url, cel

UserId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class Preflight(ApiModel):
    """Preflight checks on the job's cluster before the training, for every framework: see docs/preflight.md."""

    model_config = cel(
        ("!has(self.only) || !self.only || !has(self.level) || self.level != 'none'", "only needs level basic or full"),
    )

    level: Literal["none", "basic", "full"] | None = None
    """The checks that run on a new Ray cluster before the program. basic: network, services and data. full: then also
    one step of the training with a checkpoint and, for other frameworks than builtin, a line that the engine generates
    before it. none: no check. Default: basic with only, else none."""
    command: Annotated[list[Argument], Field(min_length=1, max_length=256)] | None = None
    """The program of level full's stage training, only for framework command: a short run of the training that
    exits with 0 if it succeeds. It runs without a shell and writes to the folder in the variable
    RLT_PREFLIGHT_DIRECTORY, which is removed afterwards. Default: one step of framework.command, if it is verl or
    OpenRLHF."""
    min_bus_bandwidth: Annotated[float, Field(gt=0, le=100000)] | None = None
    """Minimum bus bandwidth of an all-reduce over all workers, in GB/s as in nccl-tests. Below it, the preflight fails
    and names the slow pods. Default: no minimum; over RDMA, a warning below half of the ports' rate."""
    only: bool = False
    """Whether the job ends after the checks, without the program. `rlt preflight` sets it."""


class FailurePolicy(ApiModel):
    """New attempts after a failure of the program or the Ray head, and after a disruption: Kubernetes ends a pod for a
    cause outside of the job. A deadline or a manual stop ends the job without a new attempt."""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """Maximum number of new attempts after a failure. An attempt resumes from the latest complete checkpoint, which
    needs checkpoint.saveFreq and shared storage. A command resumes as after a suspension. Repeated attempts are
    delayed by 10 s, doubled up to 5 minutes, and from 10 s again after one that ran for 10 minutes."""
    restart_policy: Literal["InPlace", "Recreate"] = "Recreate"
    """Where an attempt after a failure runs. Recreate: on a new Ray cluster. InPlace: on the same one, the first time
    without a delay, if the program failed or a worker pod was deleted, all others are healthy, and no process of the
    earlier attempt is left. Otherwise, when a failure occurs twice in a row, and after three attempts in place, a new
    Ray cluster follows. InPlace needs framework builtin, storage that outlives the pods, and about 0.4 GiB more memory
    for each process of a worker pod, whose successor starts in advance."""
    max_disruptions: Annotated[int, Field(ge=0, le=100000)] | None = None
    """Maximum number of new attempts after a disruption, such as an eviction, a drain, a preemption, or the loss or
    shutdown of a node. They do not count in maxRestarts. Default: no limit, within activeDeadlineSeconds."""
    on_drain: Literal["CheckpointAndRestart", "Wait"] = "CheckpointAndRestart"
    """What happens when a node with a pod that the program needs is cordoned, as by `kubectl drain`, or will be removed
    by an autoscaler. rlt's trainer continues without pods that only generate, down to minReplicas.
    CheckpointAndRestart: the program saves its state and exits, the Ray cluster is released, and another attempt starts
    on other nodes. It counts in maxDisruptions, and without an attempt left the job waits. Wait: the
    PodDisruptionBudget blocks the drain until the job has ended. So does a job whose pods tolerate the node's taint."""
    progress_deadline_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Maximum time without progress while the program runs, in seconds. Progress is a finished step, warm-up step,
    validation or checkpoint, or another stage. The operator then keeps the stacks of all processes, stops the program,
    and the attempt fails with reason NoProgress. The time until the first step counts. 0: no deadline. Default: ten
    times the longest step of the attempt, at least 1800 s, between the steps of the training. Before the first step
    7200 s for the builtin trainer and none for a command. None after the last step, and with a debugger."""
    keep_cluster_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Time for which the Ray cluster of a failed job is kept for debugging, in seconds. It keeps its nodes and its
    quota. `rlt cancel NAME` releases it earlier. ttlSecondsAfterFinished counts afterwards."""
    exclude_faulty_nodes: bool = False
    """Whether later attempts exclude a node that caused a failure: a node that is deleted, not ready or marked
    unhealthy, or whose accelerator reported a hardware error."""


class Timeline(ApiModel):
    """Ray's timeline of tasks, for Perfetto."""

    enabled: bool = True
    """Whether Ray records the timeline (RAY_PROFILING)."""
    file: AbsolutePath | None = None
    """File that the timeline is written to at the end: verl's ray_kwargs.timeline_json_file."""


class Profiler(ApiModel):
    """torch.profiler for selected steps."""

    steps: Annotated[list[Positive], Field(min_length=1, max_length=64)]
    """The steps: verl's global_profiler.steps."""
    directory: AbsolutePath | None = None
    """Folder of the traces: ROLL's profiler_output_dir. Default: the run directory."""


class Wandb(ApiModel):
    """Weights & Biases."""

    api_key: KeyReference
    """The key of a Secret with the API key (WANDB_API_KEY)."""
    project: Name | None = None
    """The project (WANDB_PROJECT). Default: the job's namespace."""
    entity: Name | None = None
    """The team (WANDB_ENTITY). Default: the API key's team."""
    base_url: Url | None = None
    """URL of a self-hosted server (WANDB_BASE_URL)."""
    proxy: Url | None = None
    """A proxy that only Weights & Biases uses: verl's trainer.wandb_proxy."""


class TensorBoard(ApiModel):
    """Event files of TensorBoard."""

    directory: AbsolutePath | None = None
    """Folder of the files (TENSORBOARD_DIR). Default: tensorboard in the run directory."""


class Observability(ApiModel):
    """Records in addition to the status and the metrics that every job has."""

    scrape_annotations: bool = True
    """Whether the head pod has prometheus.io annotations."""
    timeline: Timeline | None = None
    """Ray's timeline. Default: none."""
    profiler: Profiler | None = None
    """torch.profiler. Default: none."""
    record_steps: Annotated[list[Positive], Field(max_length=64)] = []
    """Steps whose rollouts are recorded for `rlt-trainer replay`."""
    wandb: Wandb | None = None
    """Weights & Biases. Default: none."""
    tensorboard: TensorBoard | None = None
    """TensorBoard. Default: none."""
    metric_rules: MetricRules = MetricRules()
    """Rules over the metrics of the training, such as entropy and KL divergence. Default: all rules warn."""
    debugger: Literal["none", "ray", "legacy"] = "none"
    """ray is the distributed debugger for VS Code with post-mortem debugging (RAY_DEBUG=1, RAY_DEBUG_POST_MORTEM=1).
    legacy is pdb by `ray debug` (RAY_DEBUG=legacy, --ray-debugger-external)."""


class Security(ApiModel):
    """Users and privileges of the pods."""

    model_config = cel(("!has(self.runAsUser) || self.runAsUser > 0", "runAsUser must not be 0 (root)"))

    run_as_user: UserId = 1000
    """User ID of all processes. The user must be able to write to the storage."""
    run_as_group: UserId = 1000
    """Group ID of all processes."""
    fs_group: UserId = 1000
    """Group ID that owns mounted volumes."""
    supplemental_groups: Annotated[list[UserId], Field(max_length=16)] = []
    """Additional group IDs, such as the groups of /dev/kfd and /dev/dri (video, render)."""
    ptrace: bool = False
    """Whether containers have SYS_PTRACE, for py-spy and for ROCm's IPC between processes. It lets processes of a pod
    read the memory of each other. Kubernetes gives it to root only: without privileged, it has no effect."""
    ipc_lock: bool = False
    """Whether containers have IPC_LOCK, for container runtimes that limit locked memory. Network profiles with RDMA
    always set it."""
    unconfined: bool = False
    """Whether the seccomp profile is Unconfined, which allows every system call."""
    privileged: bool = False
    """Whether containers are privileged, which gives them full access to their node."""
    ray_token: bool | None = None
    """Whether clients of Ray and of the driver need a token, which the operator creates for each attempt. Default: true
    with Ray 2.52 or later."""
