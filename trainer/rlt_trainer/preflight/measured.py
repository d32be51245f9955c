"""What was measured, as frozen values: all that the checks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlt_trainer.driver.worker_group import Role


@dataclass(frozen=True)
class Pod:
    """One pod, by a process in it."""

    name: str
    role: Role | None
    """None: the head."""
    interface: str
    """The network interface that has the pod's address; "?" if none does."""
    resolves: bool
    """Whether its host name leads to an address."""
    shared_memory: int
    """Size of /dev/shm in bytes."""
    versions: Mapping[str, str]
    """Program or library -> version."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Files and folders that the training reads and this pod cannot -> why."""


@dataclass(frozen=True)
class Device:
    """The accelerators that torch shows to one process."""

    pod: str
    count: int
    name: str | None = None
    uuid: str | None = None
    """Which one it is, where torch knows."""
    free: int = 0
    """Its free memory in bytes."""
    total: int = 0
    """Its memory in bytes."""


@dataclass(frozen=True)
class Folder:
    """The run directory as one pod sees it."""

    pod: str
    error: str | None
    """Why it cannot be written."""
    unseen: tuple[str, ...] = ()
    """Pods whose file it does not see."""
    free: int = 0
    """Free bytes."""


@dataclass(frozen=True)
class BrokenLink:
    """A connection from one pod to another that could not be made."""

    pod: str
    peer: str
    error: str


@dataclass(frozen=True)
class Reduction:
    """What one rank saw of the all-reduces over all ranks."""

    pod: str
    error: str | None = None
    """Why it did not come to an end, if it did not."""
    gone: bool = False
    """Whether nothing at all came from it: the others, which say that they have waited, wait for such a one."""
    wrong: tuple[int, ...] = ()
    """Sizes in bytes whose sum was not the right one."""
    seconds: float = 0.0
    """Mean time of one all-reduce of `bytes`."""
    bytes: int = 0
    transports: tuple[str, ...] = ()
    """What NCCL has taken between pods (nccl_log.py)."""


@dataclass(frozen=True)
class Measured:
    """Everything in one value."""

    pods: tuple[Pod, ...]
    """Those that answered, the head first."""
    devices: tuple[Device, ...]
    """One for each process that answered."""
    silent: Mapping[str, str]
    """Pod -> why a process there did not answer."""
    folders: tuple[Folder, ...] = ()
    skews: Mapping[str, float] = field(default_factory=dict)
    """Pod -> seconds that its clock is ahead of the head's."""
    connections: int = 0
    """Connections between pods that were tried."""
    broken: tuple[BrokenLink, ...] = ()
    backend: str = "gloo"
    """gloo or nccl."""
    reductions: tuple[Reduction, ...] = ()
    """One for each rank of the group."""
    has_chat_template: bool | None = None
    """Whether the model's tokenizer has one; None where that is not known."""
