"""The connections of a client are closed at the end of the program, and when the client is deleted."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from rlt import Client, Job
from rlt.errors import InvalidJobError
from rlt.event_loop import BackgroundLoop


class NoJobs(BaseHTTPRequestHandler):
    """An API server without jobs."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"items": [], "metadata": {"resourceVersion": "1"}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), NoJobs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    yield tmp_path / "config"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "script",
    ["print(Client(kubeconfig=FILE).list())", "client = Client(kubeconfig=FILE); print(client.list())"],
    ids=["unused", "in-use"],
)
def test_a_program_ends_without_warnings(kubeconfig: Path, script: str) -> None:
    program = f"from rlt import Client; FILE = {str(kubeconfig)!r}; {script}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_client_can_be_closed_twice(kubeconfig: Path) -> None:
    client = Client(kubeconfig=str(kubeconfig))
    client.close()
    client.close()


def test_a_loop_can_be_closed_in_its_own_thread() -> None:
    loop = BackgroundLoop()
    ended = threading.Event()

    async def last() -> None:
        ended.set()

    async def close() -> None:
        loop.close(last)

    loop.run(close())
    assert ended.wait(timeout=300)


def test_an_unreadable_file_is_an_error_of_rlt(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobError, match=r"nosuch\.yaml: No such file or directory"):
        Job.from_file(tmp_path / "nosuch.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidJobError, match="is not UTF-8"):
        Job.from_file(tmp_path / "binary.yaml")
