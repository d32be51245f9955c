"""What the machine must have for the selected tests, checked before anything is built or installed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from rlt_e2e.cluster import lifecycle, machine
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.stages import cache_folder
from rlt_e2e.environment import FREE_GB, ROOT, check_environment, is_installed

SMALL_MEMORY_GB = 4
"""For style, types and unit tests. Everything else needs the memory of a cluster."""


def check_machine(needing_root: Sequence[str], *, is_small: bool) -> None:
    """Check privileges, memory, disk and Python. Raises ValueError.

    `needing_root` names the parts or test files that need a cluster, namespaces or control groups.
    """
    on_cluster = bool(needing_root) and "KUBECONFIG" not in os.environ
    if on_cluster and os.geteuid() != 0:
        raise ValueError(
            f"{', '.join(needing_root)}: these tests need root for namespaces and control groups: "
            "run make as root or with sudo, or run `make check`, which needs no root"
        )
    machine.check_memory(SMALL_MEMORY_GB if is_small else machine.MIN_MEMORY_GB)
    check_environment()
    if on_cluster:
        shared = not is_installed() and machine.is_same_disk(ROOT, cache_folder())
        machine.check_disk(cache_folder(), machine.MIN_DISK_GB + (FREE_GB if shared else 0))
        lifecycle.check(Layout.numbered(0, nodes=2))


def needs_cluster(file: str) -> bool:
    """Whether a test file, or one of a folder, has tests with a marker that needs root."""
    path = ROOT / file.partition("::")[0]
    texts = [each.read_text() for each in (path.rglob("test_*.py") if path.is_dir() else [path])]
    return any(re.search(r"mark\.(apiserver|cluster|hosts)\b", text) for text in texts)
