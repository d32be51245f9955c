"""The page of a cluster as a process, before a simulated API server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulated_api_server import SimulatedApiServer, serve, write_kubeconfig


@contextmanager
def serve_cluster(simulated: SimulatedApiServer, folder: Path) -> Iterator[tuple[str, int]]:
    """Serve the page. Yields its URL and the ID of its process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "rlt_ui", "--port", str(port)]
    with serve(simulated) as url:
        write_kubeconfig(folder / "kubeconfig", url)
        environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig")}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr
            assert any("Uvicorn running" in line for line in running.stderr)
            try:
                yield f"http://127.0.0.1:{port}/", running.pid
            finally:
                running.terminate()
