"""Copy the logs of Ray on all nodes to DIRECTORY/ray/NODE, on storage that the nodes share.

    python3 rlt_pod.pyz collect-logs DIRECTORY

In pods the preStop hook does so (rlt_pod/keep_logs.py).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

TIMEOUT_S = 15
RAY_ADDRESS = "RAY_ADDRESS"
"""Variable with the cluster of a Ray job. Without it, Ray searches the processes of the machine for any cluster."""


def main(arguments: list[str]) -> int:
    """Copy the logs. A node that does not answer is named. The exit code is 1 if logs are missing."""
    if RAY_ADDRESS not in os.environ:
        print("collect-logs: this is not a Ray job", flush=True)
        return 1
    try:
        late = collect_logs(arguments[0])
    except Exception as error:  # Ray may have ended, which is why the logs matter
        print(f"collect-logs: the logs of Ray are not copied: {type(error).__name__}: {error}", flush=True)
        return 1
    if late:
        print(f"collect-logs: no logs of Ray from {', '.join(late)}", flush=True)
    return int(bool(late))


def collect_logs(directory: str) -> list[str]:
    """Copy the logs of each node. Returns the names of the nodes without an answer."""
    ray = import_module("ray")
    strategies = import_module("ray.util.scheduling_strategies")
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    task = ray.remote(copy_node_logs)
    archive = str(Path(__file__).absolute().parents[2])
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    references = {
        task.options(
            num_cpus=0, scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(archive, f"{directory}/ray/{name}"): name
        for node, name in nodes.items()
    }
    late = ray.wait(list(references), num_returns=len(references), timeout=TIMEOUT_S)[1]
    return sorted(references[each] for each in late)


def copy_node_logs(archive: str, target: str) -> None:
    """Copy the logs of Ray on this node. `archive` has the package rlt_pod."""
    import sys
    from importlib import import_module
    from pathlib import Path

    sys.path.insert(0, archive)
    logs = import_module("ray._private.worker")._global_node.get_logs_dir_path()
    import_module("rlt_pod.keep_logs").copy_logs(Path(logs), Path(target))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
