"""Servers of sandbox pods as processes, for tests. They do not run as root, which can read every process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlt_pod.sandbox.protocol import KEY_VARIABLE, MAX_FRAME, encode, prove
from rlt_pod.sandbox.serve import read_frame

KEY = "k" * 64
MEMORY = 256 * 2**20
OTHER_USER = 65534
PROGRAMS = Path(__file__).parents[1]


@contextmanager
def start_server(
    *, is_process_1: bool = False, is_owner: bool = False, memory: int = MEMORY
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield the process of a server, with a new folder for its programs, and its port.

    is_process_1: it has its own process IDs, as in a pod. This needs root.
    is_owner: its programs can read what the user of the tests can read, such as the cache. They see OTHER_USER.
    """
    user = OTHER_USER if os.getuid() == 0 else None
    folder = tempfile.mkdtemp(prefix="rlt-sandbox-")
    os.chmod(folder, 0o777)
    environment = {KEY_VARIABLE: KEY, "TMPDIR": folder, "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "rlt_pod", "sandbox", str(memory), "0"]
    if is_process_1:
        options = ["--pid", "--fork", "--kill-child", "--mount-proc", f"--setgid={user}", f"--setuid={user}"]
        command = ["unshare", *options, *command]
        user = None
    if is_owner:
        command = ["unshare", "--user", f"--map-user={OTHER_USER}", f"--map-group={OTHER_USER}", *command]
        user = None
    with subprocess.Popen(command, env=environment, cwd="/", user=user, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline().split()[-1])
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder)


def claim(port: int, key: str = KEY) -> tuple[socket.socket, Any]:
    """Claim a server. Return the connection and the answer, None if the claim is rejected."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    challenge = read_frame(connection, MAX_FRAME)
    assert challenge
    return connection, exchange(connection, {"proof": prove(key, str(challenge["nonce"]))})


def exchange(connection: socket.socket, message: dict[str, Any]) -> Any:
    """Send a frame and return the next one of the server."""
    connection.sendall(encode(message))
    return read_frame(connection, MAX_FRAME)


def call(connection: socket.socket, **request: Any) -> Any:
    """Return the answer to a request of the driver."""
    return exchange(connection, request)["answer"]


def build_run(program: str, command: str = "python3") -> dict[str, Any]:
    """Build the request for a Python program."""
    return {"run": {"command": [command, "-u", "-"], "stdin": program, "variables": {}}}


def run(connection: socket.socket, program: str, command: str = "python3") -> Any:
    """Run a Python program, and return the answer."""
    return call(connection, **build_run(program, command))
