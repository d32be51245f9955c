"""The operator's process without an API server: its port is open, it is alive, not ready, and ends on SIGTERM."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import yaml
from apiserver.in_cluster import Operator
from apiserver.waiting import eventually


def write_kubeconfig(file: Path, port: int) -> Path:
    """A kubeconfig of an API server at a port of this machine."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {}}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


def fetch_error(operator: Operator, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_an_unavailable_api_server_does_not_affect_liveness(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # does not listen: connections fail
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", unused.getsockname()[1])
        operator = Operator(kubeconfig, tmp_path / "log", ("--leader-election-lease=rlt-system/rlt-operator",))
        operator.launch()
        eventually("an open port", lambda: operator.alive() and operator.fetch("/healthz") == "ok\n")
        eventually("an attempt", lambda: "waiting for the API server" in operator.log.read_text())
        assert operator.fetch("/healthz") == "ok\n"
        assert fetch_error(operator, "/readyz") == (503, "not ready: the cache is not complete\n")
        assert not operator.leads()
        assert operator.stop() == 0
    assert "Traceback" not in operator.log.read_text()
