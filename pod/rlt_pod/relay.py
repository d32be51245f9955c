"""The program that connects standard input and output to a port in the pods of a job (tunnel.py runs it in a pod).

    python3 -c PROGRAM HOST PORT

It has no imports outside of the standard library (Python 3.8 or later), because it runs in the image of the job.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

BLOCK = 64 * 1024


def relay(host: str, port: int) -> None:
    """Copy in both directions until the port closes its connection."""
    with socket.create_connection((host, port)) as connection:
        threading.Thread(target=send_input, args=(connection,), daemon=True).start()
        while data := connection.recv(BLOCK):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def send_input(connection: socket.socket) -> None:
    """Send standard input until it ends."""
    while data := os.read(sys.stdin.fileno(), BLOCK):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    relay(sys.argv[1], int(sys.argv[2]))
