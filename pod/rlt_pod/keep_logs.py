"""Copy the logs of Ray in this pod to the run directory, when the pod ends. The preStop hook calls it.

Left out are the output of the program, which the run directory has already, and the logs of runtime environments, which
contain environment variables. Values of secret variables are masked.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

ATTEMPT_DIRECTORY = "RLT_ATTEMPT_DIRECTORY"
"""Variable with the folder of the attempt. Pods of a job without a volume do not have it."""
SESSION_LOGS = "/tmp/ray/session_latest/logs"
"""The logs of Ray in a pod (--temp-dir of `ray start`, Ray 2.60)."""
LOG = re.compile(r"^(?!job-driver-|runtime_env).*\.(log|out|err)(\.\d+)?$")
"""Files that are copied."""
MAX_FILE_BYTES = 2**20
"""Maximum size of a copied file: the end of the log."""
MAX_POD_BYTES = 32 * 2**20
"""Maximum size of a pod's files. The logs that changed last have precedence."""
TIMEOUT_S = 20.0
"""Time for the copies. A storage that hangs must not keep the pod until the end of its grace period."""
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
"""Names of variables with a secret."""
MIN_SECRET_LENGTH = 8
MASK = b"***"


def keep_logs() -> None:
    """Copy the logs to ray/POD in the folder of the attempt."""
    directory = os.environ.get(ATTEMPT_DIRECTORY)
    if not directory:
        return
    target = Path(directory, "ray", socket.gethostname())
    thread = threading.Thread(target=copy_logs, args=(Path(SESSION_LOGS), target), daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)


def copy_logs(source: Path, target: Path) -> None:
    """Copy the ends of the latest logs. Stops at the first file that cannot be written."""
    secrets = list_secrets(os.environ)
    left = MAX_POD_BYTES
    try:
        files = sorted((file for file in source.iterdir() if LOG.match(file.name)), key=get_age)
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            content = read_end(file, min(MAX_FILE_BYTES, left))
            if content:
                (target / file.name).write_bytes(mask(content, secrets))
            left -= len(content)
    except OSError as error:
        print(f"keep_logs: {error}")


def get_age(file: Path) -> float:
    """A number that is lower for a file that changed later."""
    return -file.stat().st_mtime


def read_end(file: Path, size: int) -> bytes:
    """The last bytes of a file, without an incomplete first line."""
    with file.open("rb") as opened:
        total = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, total - size))
        content = opened.read(size)
    return content if total <= size else content.partition(b"\n")[2]


def list_secrets(environment: Mapping[str, str]) -> list[bytes]:
    """The values of secret variables, the longest first."""
    values = [value for name, value in environment.items() if SECRET_NAME.search(name) and not value.startswith("/")]
    return sorted({value.encode() for value in values if len(value) >= MIN_SECRET_LENGTH}, key=len, reverse=True)


def mask(content: bytes, secrets: list[bytes]) -> bytes:
    """Replace the secrets."""
    for secret in secrets:
        content = content.replace(secret, MASK)
    return content
