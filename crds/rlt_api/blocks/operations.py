"""spec.preflight, failurePolicy, observability and security: how a job is watched over."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.resources import KeyReference
from rlt_api.model import AbsolutePath, ApiModel, Positive, cel

UserId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$", max_length=1024)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class Preflight(ApiModel):
    """Checks on the job's own nodes before the training starts (docs/preflight.md)."""

    enabled: bool = False
    """Whether they are made, by a Ray job of their own on every new Ray cluster: /dev/shm, accelerators, versions,
    storage, model and data files, the network between all ranks. For framework builtin."""


class FailurePolicy(ApiModel):
    """What happens when the training fails by itself: its program or its Ray head does. (A deadline or somebody who
    stops it ends the job.)"""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """New attempts, each on a new Ray cluster. It goes on from the latest complete checkpoint, so checkpoint.saveFreq
    and a shared storage belong to it; a command goes on as it does after a suspension."""
    exclude_faulty_nodes: bool = False
    """Whether later attempts stay away from a node that was at fault: one that is gone, not ready or marked ill, or
    whose accelerator reported a hardware error."""


class Timeline(ApiModel):
    """Ray's timeline of tasks, for Perfetto."""

    enabled: bool = True
    """Whether Ray records it (RAY_PROFILING)."""
    file: AbsolutePath | None = None
    """Where it is written at the end: verl's ray_kwargs.timeline_json_file."""


class Profiler(ApiModel):
    """torch.profiler on some steps."""

    steps: Annotated[list[Positive], Field(min_length=1, max_length=64)]
    """The steps: verl's global_profiler.steps."""
    directory: AbsolutePath | None = None
    """Where the traces go: ROLL's profiler_output_dir. Default: the run directory."""


class Wandb(ApiModel):
    """Weights & Biases."""

    api_key: KeyReference
    """The Secret's key with the API key (WANDB_API_KEY)."""
    project: Name | None = None
    """The project (WANDB_PROJECT). Default: the job's namespace."""
    entity: Name | None = None
    """The team (WANDB_ENTITY). Default: the key's own."""
    base_url: Url | None = None
    """A server of your own (WANDB_BASE_URL)."""
    proxy: Url | None = None
    """A proxy for Weights & Biases alone: verl's trainer.wandb_proxy."""


class TensorBoard(ApiModel):
    """TensorBoard's event files."""

    directory: AbsolutePath | None = None
    """Where they go (TENSORBOARD_DIR). Default: tensorboard in the run directory."""


class Observability(ApiModel):
    """What is recorded beyond the status and the metrics that every job has."""

    scrape_annotations: bool = True
    """prometheus.io annotations on the head's pod."""
    timeline: Timeline | None = None
    """Ray's timeline. Default: none."""
    profiler: Profiler | None = None
    """torch.profiler. Default: none."""
    record_steps: Annotated[list[Positive], Field(max_length=64)] = []
    """Steps whose rollouts are recorded, for `rlt-trainer replay`."""
    wandb: Wandb | None = None
    """Weights & Biases. Default: none."""
    tensorboard: TensorBoard | None = None
    """TensorBoard. Default: none."""
    debugger: Literal["none", "ray", "legacy"] = "none"
    """ray: the distributed debugger of VS Code, with post-mortem (RAY_DEBUG=1, RAY_DEBUG_POST_MORTEM=1). legacy: pdb by
    `ray debug` (RAY_DEBUG=legacy, --ray-debugger-external). They exclude each other."""


class Security(ApiModel):
    """Users and privileges of the pods."""

    model_config = cel(("!has(self.runAsUser) || self.runAsUser > 0", "runAsUser 0 is root: give another number"))

    run_as_user: UserId = 1000
    """The user of all processes, who must be able to write the storage."""
    run_as_group: UserId = 1000
    """Their group."""
    fs_group: UserId = 1000
    """The group that owns mounted volumes."""
    supplemental_groups: Annotated[list[UserId], Field(max_length=16)] = []
    """More groups, such as those of /dev/kfd and /dev/dri (video, render)."""
    ptrace: bool = False
    """SYS_PTRACE, for py-spy and for ROCm's IPC between processes. It lets processes of a pod read each other."""
    ipc_lock: bool = False
    """IPC_LOCK, where the runtime limits locked memory. Profiles with RDMA have it by themselves."""
    unconfined: bool = False
    """Whether seccomp is off: every system call of the kernel is then open to the pods."""
    privileged: bool = False
    """Whether containers are privileged: they then own their node."""
