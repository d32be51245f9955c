"""Control groups of the nodes, in all hierarchies that the machine mounts: version 1, version 2 or both."""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path


def parse_hierarchies(mounts: str) -> list[tuple[Path, bool]]:
    """Return the mount point of each hierarchy and whether it is of version 2, from the text of /proc/mounts."""
    rows = [line.split() for line in mounts.splitlines()]
    return [(Path(row[1]), row[2] == "cgroup2") for row in rows if row[2] in ("cgroup", "cgroup2")]


def list_hierarchies() -> list[tuple[Path, bool]]:
    return parse_hierarchies(Path("/proc/mounts").read_text())


def create(group: str) -> None:
    """Create `group` (such as ``/rlt-node-1``) in every hierarchy, with the controllers that the kubelet needs."""
    for root, is_v2 in list_hierarchies():
        folder = root / group.lstrip("/")
        folder.mkdir(exist_ok=True)
        if is_v2:
            for parent in (root, folder):
                _enable_controllers(parent)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new v1 group, which then accepts no process
            file = folder / name
            if not is_v2 and file.exists() and not file.read_text().strip():
                file.write_text((root / name).read_text())


def list_pids(group: str) -> set[int]:
    """Return all pids in `group` and the groups below it, in any hierarchy."""
    found: set[int] = set()
    for folder in _descending(group):
        found |= {int(pid) for pid in _lines(folder / "cgroup.procs") if pid != "0"}
    return found


def remove(group: str) -> None:
    """Remove `group` and the groups below it. Their processes must have ended; the kernel may release them later."""
    deadline = time.monotonic() + 5
    for folder in reversed(_descending(group)):
        while True:
            try:
                folder.rmdir()
                break
            except FileNotFoundError:  # containerd's shim has removed it
                break
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def enter(group: str) -> None:
    """Move this process into `group` of the hierarchy that accounts for CPU time. Its descendants follow."""
    folder = _accounting() / group.lstrip("/")
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def leave(group: str) -> None:
    """Move the processes of `group` back to the root of that hierarchy and remove the group."""
    root = _accounting()
    folder = root / group.lstrip("/")
    while pids := _lines(folder / "cgroup.procs"):
        for pid in pids:
            with suppress(ProcessLookupError):
                (root / "cgroup.procs").write_text(pid)
    folder.rmdir()


def cpu_seconds(group: str) -> float:
    """Return the CPU seconds that `group` and the groups below it have used."""
    folder = _accounting() / group.lstrip("/")
    if usage := _lines(folder / "cpuacct.usage"):
        return int(usage[0]) / 1e9
    usage = _lines(folder / "cpu.stat")
    return int(usage[usage.index("usage_usec") + 1]) / 1e6 if usage else 0.0


def _accounting() -> Path:
    """Return the mount point of the hierarchy that accounts for CPU time: cpuacct of version 1, else version 2."""
    found = [root for root, is_v2 in list_hierarchies() if is_v2 or (root / "cpuacct.usage").exists()]
    return min(found, key=lambda root: not (root / "cpuacct.usage").exists())


def _enable_controllers(folder: Path) -> None:
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    for controller in (folder / "cgroup.controllers").read_text().split():
        if controller not in enabled:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _descending(group: str) -> list[Path]:
    """List `group` and the groups below it in every hierarchy, parents first. os.walk skips groups that are removed."""
    return [Path(folder) for root, _ in list_hierarchies() for folder, _, _ in os.walk(root / group.lstrip("/"))]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # the group was removed, or is threaded
        return []
