"""Serve an image registry with crane, which keeps it until the process ends, for the tests of releases."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlt_e2e.ports import free_port

READY_TIMEOUT_S = 60.0


@contextmanager
def oci_registry(crane: Path, folder: Path, *, port: int | None = None, inside: Sequence[str] = ()) -> Iterator[str]:
    """Serve an empty registry on all addresses, with its blobs and log in `folder`. Yields its address on loopback.

    `inside` is a command line that runs another command in the network of a node.
    """
    folder.mkdir()
    port = port or free_port()
    log = folder / "registry.log"
    command = [*inside, str(crane), "registry", "serve", "--address", f"0.0.0.0:{port}", "--disk", str(folder)]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        address = f"127.0.0.1:{port}"
        _await_ready([*inside, str(crane), "catalog", address], process, log)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await_ready(catalog: Sequence[str], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while subprocess.run(catalog, capture_output=True).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"the registry does not respond: {log.read_text()}")
        time.sleep(0.1)
