"""A network and mount namespace of the bench's own: its ports and addresses collide with nothing on the machine.

The addresses of simulated pods are local in it, so that one process answers for the Ray heads of all jobs.
"""

from __future__ import annotations

import os
import subprocess
import sys

POD_NETWORK = "10.100.128.0/17"
"""Addresses of the simulated pods (Layout.fake_pods)."""
COMMANDS = (
    "link set lo up",
    f"route add local {POD_NETWORK} dev lo",
    "link add rlt-bench type veth peer name rlt-peer",
    "link set rlt-bench up",
    "link set rlt-peer up",
    "addr add 10.100.0.1/24 dev rlt-bench",
    "route add default dev rlt-bench",
)
"""kube-apiserver does not start without a default route."""
ISOLATED = "RLT_BENCH_ISOLATED"


def enter() -> None:
    """Run this program again in its own namespaces, and exit with its status. Returns in the isolated program."""
    if os.environ.get(ISOLATED):
        for arguments in COMMANDS:
            subprocess.run(["ip", *arguments.split()], check=True)
        return
    if os.geteuid() != 0:
        raise SystemExit("make bench-operator needs root: it creates a network namespace")
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "operator_bench", *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, ISOLATED: "1"})
