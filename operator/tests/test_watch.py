"""kopf runs beside the operator's own tasks and signal handlers, and ends with its task."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import kopf
import pytest
import yaml

from rlt_operator.watch import KopfWatch, use_service_address


def write_kubeconfig(folder: Path, port: int) -> Path:
    file = folder / "kubeconfig"
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": "none"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


def test_kopf_leaves_signals_and_other_tasks_to_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(run(tmp_path, monkeypatch))


async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = asyncio.Event()
    stop = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, server.sockets[0].getsockname()[1])))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    watch = KopfWatch()
    watch.select(None, True)
    watching = asyncio.create_task(watch.run(lambda change, job: None, lambda: None))
    await asyncio.wait_for(connected.wait(), 60)
    other = asyncio.create_task(asyncio.Event().wait())
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 60)
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching], timeout=60)
    assert watching.cancelled()
    assert not other.done()
    other.cancel()
    server.close()


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_kopf_connects_to_the_address_of_the_service(host: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name kubernetes.default.svc, which kopf uses, needs a DNS service."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = use_service_address(kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="a"))
    assert (found.server, found.token) == (server, "a")
