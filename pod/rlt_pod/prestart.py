"""Make raylets start processes with the pod's imports, for the actors of the next program.

Ray starts them with a pod (rlt_api/frameworks/builtin/prestart.py), and not again for a second program on it. A raylet
starts more on a request that Ray itself sends in other cases (NodeManager::HandlePrestartWorkers,
src/ray/raylet/node_manager.cc, Ray 2.60). Without the ID of a job, the first job that needs a process gets it. The
actors request them while they run (rlt_trainer/cluster/successor.py), and the check before the next program those that
are missing (clear.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

LIMIT = "RAY_num_workers_soft_limit"
"""The variable of a worker pod with the number of its actors (rlt_api/frameworks/builtin/prestart.py)."""
SUCCESSORS = "RLT_SUCCESSORS"
"""The variable of a worker pod whose actors request a process for the next program: "1"."""
KEEP_ALIVE_S = 30 * 24 * 3600
"""Time for which a raylet keeps a process that no job needs: the longest run of a program."""
TIMEOUT_S = 5.0


def start_processes(nodes: Sequence[Mapping[str, Any]], missing: Mapping[str, int]) -> None:
    """Make each node start as many processes as it is `missing`, by its ID. Does not wait for them.

    A failure is printed alone: the next program then starts its processes itself, some seconds later.
    """
    for node in nodes:
        count = missing.get(node["NodeID"], 0)
        if count == 0:
            continue
        try:
            _request(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", count)
        except Exception as error:  # another version of Ray, or a node that was lost meanwhile
            print(f"prestart: {node['NodeManagerHostname']} starts no processes: {type(error).__name__}", flush=True)


def _request(address: str, count: int) -> None:
    messages = import_module("ray.core.generated.node_manager_pb2")
    services = import_module("ray.core.generated.node_manager_pb2_grpc")
    language = import_module("ray.core.generated.common_pb2").Language.PYTHON
    channel = import_module("ray._private.grpc_utils").init_grpc_channel(address)
    try:
        stub = services.NodeManagerServiceStub(channel)
        request = messages.PrestartWorkersRequest(
            language=language, num_workers=count, keep_alive_duration_secs=KEEP_ALIVE_S
        )
        stub.PrestartWorkers(request, timeout=TIMEOUT_S)
    finally:
        channel.close()
