"""Check that the machine can run a cluster, and restore the settings that a cluster changes.

The message of each error states what is wrong and what to do.
"""

import json
import os
import re
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

from rlt_e2e.cluster import cgroups, network
from rlt_e2e.cluster.layout import PORT_NAMES, Layout
from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import cache_folder

MIN_DISK_GB = 10
MIN_MEMORY_GB = 15
"""Of a cluster with nodes. Linux reports less than the 16 GiB (17 GB) of such a machine."""
MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of the control group of a container, in versions 2 and 1."""

SAVED_STATE = Path("/run/rlt/machine.json")
"""Settings before the first cluster, which the last one restores. A reboot resets the settings and this file."""

LOCK = Path("/run/rlt-machine.lock")

SYSCTLS = (
    "net/ipv4/ip_forward",
    # The kubelet sets these for the whole machine.
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def check(layout: Layout) -> None:
    """Check privileges, disk, ports, control groups and network. Raises ValueError."""
    if os.geteuid() != 0:
        raise ValueError("a cluster needs root for namespaces and control groups: run the command as root or with sudo")
    for folder in (layout.state, cache_folder()):
        check_disk(folder, MIN_DISK_GB)
    if layout.nodes:
        check_memory(MIN_MEMORY_GB)
    for name in PORT_NAMES:
        check_port(layout.port(name), name)
    if layout.nodes:
        if not any(os.access(root, os.W_OK) for root, _ in cgroups.list_hierarchies()):
            raise ValueError(
                "no control groups are writable: boot a kernel with them, or mount cgroup2 on /sys/fs/cgroup"
            )
        if shutil.which("ip"):
            check_network(layout)


def check_disk(folder: Path, required_gb: float) -> None:
    """Check the free space on the disk of `folder`, which may not exist yet."""
    free_gb = shutil.disk_usage(_existing(folder)).free / 1e9
    if free_gb < required_gb:
        raise ValueError(
            f"the disk of {folder} has {free_gb:.1f} GB free and {required_gb:.0f} GB are required: free disk space, "
            "or set XDG_CACHE_HOME and XDG_STATE_HOME to folders of a larger disk"
        )


def is_same_disk(first: Path, second: Path) -> bool:
    """Whether two folders, which may not exist yet, are on one file system."""
    return _existing(first).stat().st_dev == _existing(second).stat().st_dev


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def check_memory(required_gb: float) -> None:
    """Check the memory of the machine, or of the container that limits it."""
    found_gb = find_memory(Path("/proc/meminfo").read_text(), [_read(file) for file in MEMORY_LIMITS]) / 1e9
    if found_gb < required_gb:
        raise ValueError(
            f"the machine has {found_gb:.1f} GB of memory and {required_gb:.0f} GB are required: "
            "use a larger machine, or raise the memory limit of the container"
        )


def find_memory(meminfo: str, limits: Iterable[str]) -> int:
    """Return the bytes of memory from the text of /proc/meminfo and the limits of control groups."""
    total = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    assert total, "/proc/meminfo has no MemTotal"
    return min([int(total[1]) * 1024, *(int(limit) for limit in limits if limit.strip().isdigit())])


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def check_port(port: int, name: str) -> None:
    """Check that no program listens on `port` of loopback or of all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ValueError(
                f"port {port} for {name} is in use: end the program that listens on it (`ss -ltnp 'sport = :{port}'` "
                "shows it), or select other ports with --first-port"
            ) from None


def check_network(layout: Layout) -> None:
    if network.has_bridge(layout):
        raise ValueError(
            f"the network link {layout.bridge} of another cluster exists: remove that cluster, set --subnet to another "
            f"value than {layout.subnet}, or remove the link with `ip link delete {layout.bridge}`"
        )
    if taken := network.find_conflict(layout, network.list_routes()):
        raise ValueError(
            f"the machine has a route to {taken}, which overlaps {layout.network} of the cluster: set --subnet to "
            f"another value than {layout.subnet}"
        )


def save_state(folders: tuple[str, ...]) -> None:
    """Save the current sysctls and create the missing `folders` (mount points of the nodes)."""
    with exclusive_lock(LOCK):
        _write_state(folders)
    for folder in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)


def _write_state(folders: tuple[str, ...]) -> None:
    if not SAVED_STATE.exists():
        missing = [folder for folder in folders if not Path(folder).exists()]
        values = {name: Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}
        SAVED_STATE.parent.mkdir(exist_ok=True)
        SAVED_STATE.write_text(json.dumps({"sysctls": values, "folders": missing}))


def restore_state() -> None:
    """Restore what `save_state` saved, unless the bridge of another cluster exists."""
    bridges = [link.name for link in Path("/sys/class/net").iterdir() if re.fullmatch(r"rlt\d+", link.name)]
    if bridges or not SAVED_STATE.exists():
        return
    saved = json.loads(SAVED_STATE.read_text())
    for name, value in saved["sysctls"].items():
        Path("/proc/sys", name).write_text(value)
    for folder in saved["folders"]:
        if Path(folder).is_dir():
            Path(folder).rmdir()
    SAVED_STATE.unlink()
    SAVED_STATE.parent.rmdir()
