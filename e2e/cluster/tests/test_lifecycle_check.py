"""What is checked before anything is started."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import lifecycle
from cluster.layout import Layout


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Layout]:
    """A control plane whose first port somebody listens on, wanted by root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Layout(tmp_path / "cluster", 0, listener.getsockname()[1])


def test_a_taken_port_is_named(taken: Layout) -> None:
    with pytest.raises(ValueError, match=f"port {taken.first_port}, for etcd, is taken"):
        lifecycle.check(taken)


def test_a_cluster_that_is_there_is_left_alone(taken: Layout) -> None:
    taken.state.mkdir()
    lifecycle.Record(nodes=0, first_port=taken.first_port, subnet=taken.subnet, built="").write(taken.state)
    lifecycle.check(taken)


def test_only_root_can_have_one(taken: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ValueError, match="needs root"):
        lifecycle.check(taken)
