"""Servers of sandbox pods as processes, for tests. They do not run as root, which can read every process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_pod.sandbox.protocol import KEY_VARIABLE

KEY = "k" * 64
MEMORY = 256 * 2**20
OTHER_USER = 65534
PROGRAMS = Path(__file__).parents[1]


@contextmanager
def start_server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield the process of a server, with a new folder for its programs, and its port."""
    user = OTHER_USER if os.getuid() == 0 else None
    folder = tempfile.mkdtemp(prefix="rlt-sandbox-")
    os.chmod(folder, 0o777)
    environment = {KEY_VARIABLE: KEY, "TMPDIR": folder, "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "rlt_pod", "sandbox", str(MEMORY), "0"]
    with subprocess.Popen(command, env=environment, cwd="/", user=user, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline().split()[-1])
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder)
