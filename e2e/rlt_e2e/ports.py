"""Free ports of this machine."""

from __future__ import annotations

import itertools
import os
import random
import socket
from contextlib import suppress

_returned: set[int] = set()


def free_ports(count: int) -> int:
    """The first of `count` consecutive free ports. Each pytest-xdist worker has its own range."""
    first = 17440 + 500 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

    def is_used(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return next(start for start in itertools.count(first, 10) if not any(map(is_used, range(start, start + count))))


def free_port() -> int:
    """A free port below the kernel's range for outgoing connections, which begins at 32768. It is returned once."""
    for port in random.sample(range(20000, 32768), 100):
        with socket.socket() as probe, suppress(OSError):
            if port not in _returned:
                probe.bind(("0.0.0.0", port))
                _returned.add(port)
                return port
    raise AssertionError("100 ports in use")
