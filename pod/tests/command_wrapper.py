"""run_command.py in real processes, as the pods of a job run it."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable

Start = Callable[..., "subprocess.Popen[bytes]"]


PRINT_SIGNALS = (
    "import os, signal, sys\n"
    "for s in (2, 15): signal.signal(s, lambda n, f: (os.write(1, b'got %d\\n' % n), sys.exit(7)))\n"
)


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Wait for the process. Return exit code, standard output and standard error."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.decode()


def fetch(port: int, path: str, token: str = "") -> str | None:
    headers = {"X-Ray-Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:  # including HTTPError
        return None


def prints(process: subprocess.Popen[bytes], text: bytes) -> bool:
    """Read until the output contains the text. False if it ends without."""
    assert process.stdout
    seen = b""
    while text not in seen:
        chunk = os.read(process.stdout.fileno(), 1000)
        if not chunk:
            return False
        seen += chunk
    return True
