"""The check before a cluster is started."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlt_e2e.cluster import lifecycle
from rlt_e2e.cluster.layout import Layout


@pytest.fixture
def layout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Layout]:
    """A control plane whose first port is in use, requested by root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Layout(tmp_path / "cluster", 0, listener.getsockname()[1])


def test_port_in_use_is_rejected(layout: Layout) -> None:
    with pytest.raises(ValueError, match=f"port {layout.first_port} for etcd is in use"):
        lifecycle.check(layout)


def test_existing_cluster_is_not_checked(layout: Layout) -> None:
    layout.state.mkdir()
    lifecycle.Record(nodes=0, first_port=layout.first_port, subnet=layout.subnet, built="").write(layout.state)
    lifecycle.check(layout)


def test_root_is_required(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ValueError, match="needs root"):
        lifecycle.check(layout)
