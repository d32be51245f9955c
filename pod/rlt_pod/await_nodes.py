"""Wait until nodes have joined a Ray cluster. Runs in any image with Python 3.8 or later, without packages.

    python3 await_nodes.py DASHBOARD_URL TIMEOUT_SECONDS NODE...

The nodes have the names of `ray start --node-name`. Ray's state API lists them (ray/util/state, Ray 2.60).
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

INTERVAL_S = 1.0
REQUEST_TIMEOUT_S = 10.0
MAX_NODES = 10000


def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns 1 after the timeout, with the missing nodes on standard error."""
    url, timeout, *names = arguments
    deadline = time.monotonic() + float(timeout)
    while missing := find_missing(url, names):
        if time.monotonic() > deadline:
            print(f"rlt: {' '.join(missing)} did not join Ray within {timeout} s", file=sys.stderr, flush=True)
            return 1
        time.sleep(INTERVAL_S)
    print(f"rlt: Ray has {len(names)} nodes: {' '.join(names)}", flush=True)
    return 0


def find_missing(url: str, names: Sequence[str]) -> list[str]:
    """Return the names that no living node of Ray has: all, as long as the head does not respond."""
    request = urllib.request.Request(f"{url}/api/v0/nodes?limit={MAX_NODES}")
    if token := read_token():
        request.add_header("X-Ray-Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
            nodes = json.load(response)["data"]["result"]["result"]
    except (OSError, ValueError, KeyError, TypeError):  # before the dashboard is ready
        return list(names)
    joined = {node["node_name"] for node in nodes if node["state"] == "ALIVE"}
    return [name for name in names if name not in joined]


def read_token() -> str | None:
    """Return the token of Ray; None without token authentication."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return None
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(path).read_text().strip() if path else os.environ.get("RAY_AUTH_TOKEN")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
