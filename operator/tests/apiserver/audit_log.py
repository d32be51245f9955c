"""Writes of the operator's processes, as the API server's audit log has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from apiserver.in_cluster import Kubernetes


def read_writes(kubernetes: Kubernetes, identity: str) -> Iterator[dict[str, Any]]:
    """Read the audit log's writes whose user agent contains the identity, without writes to Leases.

    A request can lack a user agent, and the API server can be in the middle of the last line.
    """
    layout = kubernetes.cluster.layout
    assert layout
    rotated = sorted(layout.audit_log.parent.glob(f"{layout.audit_log.stem}-*.log"))
    for path in (*rotated, layout.audit_log):
        for line in path.read_text().splitlines(keepends=True):
            if identity in line and line.endswith("\n"):
                entry = json.loads(line)
                if identity in entry.get("userAgent", "") and entry["objectRef"]["resource"] != "leases":
                    yield entry
