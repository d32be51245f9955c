import os
import shutil
import socket
from pathlib import Path

import pytest

from rlt_e2e.cluster import cgroups, machine
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.network import find_conflict


def test_port_in_use_is_rejected_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} for etcd is in use: .*--first-port"):
            machine.check_port(port, "etcd")


def test_port_in_use_on_all_addresses_is_rejected() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, pytest.raises(ValueError, match="is in use"):
        machine.check_port(listener.getsockname()[1], "etcd")


def test_too_small_disk_is_rejected(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free / 1e9
    with pytest.raises(ValueError, match=r"has .* GB free and .* GB are required: free disk space"):
        machine.check_disk(tmp_path / "missing" / "folder", free + 100)


def test_too_little_memory_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"has \d+.\d GB of memory and 1000000 GB are required: use a larger machine"):
        machine.check_memory(1e6)


def test_the_memory_of_a_container_is_its_limit() -> None:
    meminfo = "MemFree: 1 kB\nMemTotal:       16000 kB\n"
    assert machine.find_memory(meminfo, ["", "max\n"]) == 16_384_000
    assert machine.find_memory(meminfo, ["8000000\n", "max\n"]) == 8_000_000


def test_user_without_root_is_rejected_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ValueError, match=r"needs root.*sudo"):
        machine.check(Layout(tmp_path, 2))


def test_machine_without_control_groups_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroups, "list_hierarchies", list)
    with pytest.raises(ValueError, match="control groups"):
        machine.check(Layout(tmp_path, 2, first_port=18440))


@pytest.mark.parametrize(
    ("destination", "conflicts"),
    [("10.100.3.0/24", True), ("10.100.7.7", True), ("10.0.0.0/8", False), ("10.101.0.0/16", False)],
)
def test_route_inside_the_network_of_the_cluster_is_a_conflict(destination: str, conflicts: bool) -> None:
    routes = [{"dst": "default", "dev": "eth0"}, {"dst": destination, "dev": "eth1"}]
    assert bool(find_conflict(Layout(Path("/state"), 2, subnet=100), routes)) == conflicts
