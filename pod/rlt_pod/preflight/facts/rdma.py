"""The RDMA ports of a pod, from /sys/class/infiniband (Documentation/ABI/stable/sysfs-class-infiniband)."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlt_pod.preflight.facts.interfaces import matches_nccl

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSFS = Path("/sys/class/infiniband")
DEVICES = Path("/dev/infiniband")
"""Device files of the pod. sysfs also shows the devices of the node that the pod does not have."""
IPC_LOCK = 1 << 14
"""CAP_IPC_LOCK in the capabilities of /proc/self/status (capabilities(7))."""


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: str
    port: int
    state: str
    """ACTIVE, INIT or DOWN."""
    link_layer: str
    """InfiniBand or Ethernet."""
    gigabits: float
    """Rate in Gbit/s."""
    netdev: str
    """Network interface of the first GID. Empty: none."""
    gids: tuple[str, ...]
    """GIDs by index. Empty text for one that is not set."""

    @property
    def is_active(self) -> bool:
        """Whether the port can transfer data."""
        return self.state == "ACTIVE"


@dataclass(frozen=True)
class Rdma:
    """The RDMA devices of a pod, and its limit of locked memory."""

    ports: tuple[Port, ...]
    """The ports that NCCL_IB_HCA selects."""
    lacks_device_files: bool
    """Whether the node has RDMA devices and the pod has none."""
    can_lock_memory: bool
    """Whether the limit of locked memory is unlimited, or the process has CAP_IPC_LOCK."""
    gid_index: int | None
    """NCCL_IB_GID_INDEX. None: NCCL selects it."""


def measure_rdma(environment: Mapping[str, str], *, sysfs: Path = SYSFS, devices: Path = DEVICES) -> Rdma:
    """Measure the pod of this process."""
    selection = environment.get("NCCL_IB_HCA", "")
    index = environment.get("NCCL_IB_GID_INDEX", "")
    ports = [port for port in list_ports(sysfs) if not selection or matches_nccl(selection, port.device)]
    has_files = devices.exists() and any(devices.glob("uverbs*"))
    return Rdma(
        ports=tuple(ports) if has_files else (),
        lacks_device_files=bool(ports) and not has_files,
        can_lock_memory=_can_lock_memory(),
        gid_index=int(index) if index.isdecimal() else None,
    )


def list_ports(sysfs: Path) -> list[Port]:
    """Return all ports, sorted. Empty without RDMA devices."""
    return [_read_port(path) for path in sorted(sysfs.glob("*/ports/*"))]


def _read_port(path: Path) -> Port:
    rate = re.match(r"[0-9.]+", _read(path / "rate"))  # such as "400 Gb/sec (4X NDR)"
    indexes = sorted(int(each.name) for each in path.glob("gids/*"))
    gids = tuple(_read(path / "gids" / str(index)) for index in indexes)
    netdevs = [_read(path / "gid_attrs" / "ndevs" / str(index)) for index in indexes]
    return Port(
        device=path.parent.parent.name,
        port=int(path.name),
        state=_read(path / "state").partition(":")[2].strip(),  # such as "4: ACTIVE"
        link_layer=_read(path / "link_layer"),
        gigabits=float(rate[0]) if rate else 0.0,
        netdev=next((each for each in netdevs if each), ""),
        gids=tuple("" if re.fullmatch(r"[0:]*", each) else each for each in gids),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # an index without an entry returns EINVAL
        return ""


def _can_lock_memory() -> bool:
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        return True
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(found and int(found[1], 16) & IPC_LOCK)
