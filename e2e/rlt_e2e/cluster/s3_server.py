"""Run an S3-compatible server for tests of object storage: versitygw, which stores objects as files."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_e2e.cluster.go_programs import GO_FOLDER, Family, obtain
from rlt_e2e.ports import free_port

S3 = Family(
    name="s3",
    title="an S3 server",
    packages=("github.com/versity/versitygw/cmd/versitygw",),
    module=GO_FOLDER / "s3",
    estimate_s=120,
)
ACCESS_KEY = "rlt"
SECRET_KEY = "secret-of-the-test"
READY_TIMEOUT_S = 300.0
PID_FILE = "s3.pid"


def build() -> Path:
    """Build the program and return its folder. The first build takes minutes."""
    return obtain(S3)


@contextmanager
def s3_server(folder: Path, address: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """Run the server with its buckets in `folder`/objects, its log and its process ID, on an address of the machine.

    Yields the variables of its clients.
    """
    objects = folder / "objects"
    log = folder / "s3.log"
    objects.mkdir()
    port = free_port()
    options = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"{address}:{port}", "posix", str(objects)]
    with log.open("w") as out:
        process = subprocess.Popen([build() / "versitygw", *options], stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    (folder / PID_FILE).write_text(str(process.pid))
    try:
        _await_port(process, (address, port), log)
        yield {
            "AWS_ENDPOINT_URL_S3": f"http://{address}:{port}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await_port(process: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            socket.create_connection(address, timeout=5).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"the S3 server does not accept connections: {log.read_text()}") from None
            time.sleep(0.05)
        else:
            return
