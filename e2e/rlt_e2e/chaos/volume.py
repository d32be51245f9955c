"""A volume that is its own file system, so that a fault can fill it.

The nodes mount one file of the machine in their mount namespaces. The kernel releases the loop device with the last
mount, at the latest with the nodes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rlt_e2e.cluster import node
from rlt_e2e.cluster.handle import TRAINER_UID
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.node import run_on_node

FILLER = "filler"


def mount_everywhere(layout: Layout, folder: Path, *, size_mb: int) -> None:
    """Mount a new file system of this size at `folder` on every node."""
    image = layout.state / f"{folder.parent.name}.ext4"
    image.unlink(missing_ok=True)
    _run("truncate", f"--size={size_mb}M", str(image))
    _run("mkfs.ext4", "-q", "-m", "0", "-E", f"root_owner={TRAINER_UID}:{TRAINER_UID}", str(image))
    device = _run("losetup", "--find", "--show", str(image)).strip()
    for each in layout.all_nodes():
        run_on_node(layout, each.name, "mount", device, str(folder))
    _run("losetup", "--detach", device)


def unmount_everywhere(layout: Layout, folder: Path) -> None:
    """Unmount the file system and remove its file."""
    for each in layout.all_nodes():
        run_on_node(layout, each.name, "umount", str(folder))
    (layout.state / f"{folder.parent.name}.ext4").unlink()


def locate(layout: Layout, folder: Path) -> Path:
    """Return the path of `folder` as the first node sees it, for the machine."""
    return Path(f"/proc/{node.find_holder(layout, layout.all_nodes()[0])}/root{folder}")


def fill(folder: Path) -> None:
    """Write until no space is left."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        for size in (2**20, 2**12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def free(folder: Path) -> None:
    """Remove what `fill` has written. A repeated call has no effect."""
    (folder / FILLER).unlink(missing_ok=True)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
