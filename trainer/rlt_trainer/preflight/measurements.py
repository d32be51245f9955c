"""The measurements that the checks evaluate, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlt_trainer.cluster.pods import Role


@dataclass(frozen=True)
class Pod:
    """One pod, measured by a process in it."""

    name: str
    role: Role | None
    """None: the head."""
    interface: str
    """The network interface with the pod's address. "?" if there is none."""
    resolves: bool
    """Whether the host name resolves to an address."""
    shared_memory: int
    """Size of /dev/shm in bytes."""
    versions: Mapping[str, str]
    """Program or library -> version."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of the training that this pod cannot read -> reason."""


@dataclass(frozen=True)
class Device:
    """The accelerators that torch sees in one process. Fields other than `count` are of the first accelerator."""

    pod: str
    count: int
    name: str | None = None
    uuid: str | None = None
    """The identifier of the accelerator, if torch reports it."""
    free: int = 0
    """Free memory in bytes."""
    total: int = 0
    """Total memory in bytes."""


@dataclass(frozen=True)
class Folder:
    """The run directory in one pod."""

    pod: str
    error: str | None
    """The error of writing to it, if any."""
    unseen: tuple[str, ...] = ()
    """Pods whose file this pod does not see."""
    free: int = 0
    """Free bytes."""


@dataclass(frozen=True)
class BrokenLink:
    """A connection from one pod to another that failed."""

    pod: str
    peer: str
    error: str


@dataclass(frozen=True)
class Reduction:
    """The all-reduces over all ranks, as measured by one rank."""

    pod: str
    error: str | None = None
    """The reason if the all-reduces did not complete."""
    is_unresponsive: bool = False
    """Whether the rank did not answer at all. The errors of other ranks are then timeouts of waiting for it."""
    wrong: tuple[int, ...] = ()
    """Sizes in bytes with a wrong sum."""
    seconds: float = 0.0
    """Mean time of one all-reduce of `bytes`."""
    bytes: int = 0
    transports: tuple[str, ...] = ()
    """The networks that NCCL uses between pods (nccl_log.py)."""


@dataclass(frozen=True)
class Measurements:
    """All measurements of a preflight."""

    pods: tuple[Pod, ...]
    """The head, then the pods that answered."""
    devices: tuple[Device, ...]
    """One for each process that answered."""
    unanswered: Mapping[str, str]
    """Pod -> the reason why a process in it did not answer."""
    folders: tuple[Folder, ...] = ()
    skews: Mapping[str, float] = field(default_factory=dict)
    """Pod -> seconds by which its clock is ahead of the head's."""
    connections: int = 0
    """Number of connections between pods that were tried."""
    broken: tuple[BrokenLink, ...] = ()
    backend: str = "gloo"
    """gloo or nccl."""
    reductions: tuple[Reduction, ...] = ()
    """One for each rank of the group."""
    has_chat_template: bool | None = None
    """Whether the model's tokenizer has a chat template. None if it is not known."""
