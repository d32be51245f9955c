"""The machine under the cluster: what must hold before anything is started, and what is put back at the end.

Each refusal is a sentence that says what is wrong and what to do.
"""

import json
import os
import re
import shutil
import socket
from pathlib import Path

from cluster import cgroups, network
from cluster.layout import PORT_NAMES, Layout
from cluster.locks import only_one
from cluster.stages import cache_folder

LEAST_DISK_GB = 10

CHANGED = Path("/run/rlt/machine.json")
"""What the first cluster found, for the last one to put back; a boot forgets it as it forgets the changes."""

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
    """Raises ValueError."""
    if os.geteuid() != 0:
        raise ValueError("a cluster needs root, for namespaces and control groups: run it as root, or with sudo")
    for folder in (layout.state, cache_folder()):
        check_disk(folder)
    for name in PORT_NAMES:
        check_port(layout.port(name), name)
    if layout.nodes:
        if not any(os.access(root, os.W_OK) for root, _ in cgroups.mounted()):
            raise ValueError(
                "no control groups can be written here: boot with them, or mount cgroup2 on /sys/fs/cgroup"
            )
        if shutil.which("ip"):
            check_network(layout)


def check_disk(folder: Path) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free_gb = shutil.disk_usage(there).free / 1e9
    if free_gb < LEAST_DISK_GB:
        raise ValueError(
            f"only {free_gb:.1f} GB are free for {folder}, and {LEAST_DISK_GB} are needed: free some, or point "
            "XDG_CACHE_HOME and XDG_STATE_HOME at a larger disk"
        )


def check_port(port: int, name: str) -> None:
    """That nothing listens on `port` of loopback or of all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ValueError(
                f"port {port}, for {name}, is taken: end the program that listens there (`ss -ltnp 'sport = :{port}'` "
                "names it), or choose other ports by --first-port"
            ) from None


def check_network(layout: Layout) -> None:
    if network.exists(layout):
        raise ValueError(
            f"the network link {layout.bridge} exists already, of another cluster: take that one down, choose another "
            f"--subnet than {layout.subnet}, or remove what is left of it by `ip link delete {layout.bridge}`"
        )
    if taken := network.conflict(layout, network.routes()):
        raise ValueError(
            f"the machine has a route to {taken}, within the cluster's {layout.network}: choose another --subnet "
            f"than {layout.subnet}"
        )


def remember(folders: tuple[str, ...]) -> None:
    """Note today's sysctls, and make the `folders` (mount points of the nodes) that are not there."""
    with only_one(LOCK):
        _note(folders)
    for folder in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)


def _note(folders: tuple[str, ...]) -> None:
    if not CHANGED.exists():
        missing = [folder for folder in folders if not Path(folder).exists()]
        values = {name: Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}
        CHANGED.parent.mkdir(exist_ok=True)
        CHANGED.write_text(json.dumps({"sysctls": values, "folders": missing}))


def restore() -> None:
    """Put back what `remember` noted, unless another cluster's bridge is there yet."""
    bridges = [link.name for link in Path("/sys/class/net").iterdir() if re.fullmatch(r"rlt\d+", link.name)]
    if bridges or not CHANGED.exists():
        return
    noted = json.loads(CHANGED.read_text())
    for name, value in noted["sysctls"].items():
        Path("/proc/sys", name).write_text(value)
    for folder in noted["folders"]:
        if Path(folder).is_dir():
            Path(folder).rmdir()
    CHANGED.unlink()
    CHANGED.parent.rmdir()
