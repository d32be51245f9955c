"""The server in a sandbox pod: `python3 rlt_pod.pyz sandbox BYTES`, with the memory for a process.

It is process 1 of its container, so that the kernel ends all programs with it, and they cannot signal it. The programs
run as the same user. The server is not dumpable: they can read neither its memory nor its variables with the key.
"""

from __future__ import annotations

import asyncio
import ctypes
import hmac
import os
import resource
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from rlt_pod.sandbox.protocol import HEADER, KEY_VARIABLE, PORT, ProtocolError, decode, encode, prove, read_length
from rlt_pod.sandbox.session import serve

CLAIM_TIMEOUT_S = 2.0
"""Time for a client to send the proof."""
MAX_CLAIM = 1024
"""Maximum length of a claim in bytes."""
PR_SET_DUMPABLE = 4
"""Source: linux/prctl.h."""


def main() -> None:
    """Wait for the client with the key, and run its programs until it closes the connection."""
    memory = int(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else PORT
    key = os.environ.pop(KEY_VARIABLE)
    forbid_dumps()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the kernel then drops it for process 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as listener:
        if dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))  # without SO_REUSEADDR: no program can bind the port
        listener.listen()
        print(f"listening on port {listener.getsockname()[1]}", flush=True)
        connection = wait_for_claim(listener, key)
        listener.shutdown(socket.SHUT_RDWR)  # rejects connections, and keeps the port
        with suppress(OSError, ProtocolError):
            connection.sendall(encode({"pod": socket.gethostname()}))
            asyncio.run(serve(connection, memory))


def forbid_dumps() -> None:
    """Make /proc/PID/environ and /proc/PID/mem of this process unreadable for its own user. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


def wait_for_claim(listener: socket.socket, key: str) -> socket.socket:
    """Return the first connection whose client has the key. The others are closed."""
    while True:
        connection, _ = listener.accept()
        nonce = secrets.token_hex()
        try:
            connection.sendall(encode({"nonce": nonce}))
            claim = read_frame(connection, MAX_CLAIM, time.monotonic() + CLAIM_TIMEOUT_S)
            proof = str(claim.get("proof")) if claim else ""
            if hmac.compare_digest(proof.encode(), prove(key, nonce).encode()):
                connection.settimeout(None)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
                return connection
        except (OSError, ProtocolError):
            pass
        connection.close()


def read_frame(connection: socket.socket, maximum: int, deadline: float | None = None) -> dict[str, Any] | None:
    """Read a frame; None at the end of the connection. Raises OSError, ProtocolError."""
    header = _receive(connection, HEADER.size, deadline)
    if header is None:
        return None
    content = _receive(connection, read_length(header, maximum), deadline)
    return None if content is None else decode(content)


def _receive(connection: socket.socket, size: int, deadline: float | None) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(min(size - len(found), 2**16))
        if not chunk:
            return None
        found += chunk
    return bytes(found)


if __name__ == "__main__":
    main()
