"""The same download in the other pods of a Ray cluster, whose disks the head does not share."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_pod.download.transfer import DownloadError
from rlt_pod.dump_stacks import NO_PRELOAD

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 60.0
"""For the other pods to join Ray. They are ready by then."""
INTERVAL_S = 0.5
MAX_ERROR_CHARACTERS = 600


def start(arguments: Sequence[str], nodes: int) -> dict[Any, str]:
    """Start `rlt_pod download` with these arguments in all nodes but this one. Returns task -> pod.

    `nodes`: the number of nodes in Ray, with this one. Raises DownloadError.
    """
    ray = import_module("ray")
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    others = _wait_for_others(ray, nodes)
    strategies = import_module("ray.util.scheduling_strategies")
    import_module("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])  # the workers cannot import it
    task = ray.remote(run_here)
    directory = str(Path(__file__).parents[2])
    return {
        task.options(
            num_cpus=0,
            max_retries=0,
            runtime_env={"env_vars": {NO_PRELOAD: "1"}},
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(directory, list(arguments)): node["NodeManagerHostname"]
        for node in others
    }


def join(tasks: dict[Any, str]) -> None:
    """Wait for the tasks. Raises DownloadError with the pod and the last line of the first one that fails."""
    ray = import_module("ray")
    waiting = list(tasks)
    while waiting:
        done, waiting = ray.wait(waiting)
        try:
            problem = ray.get(done[0])
        except Exception as error:  # the node was lost meanwhile
            problem = f"{type(error).__name__}. Start it again."
        if problem:
            raise DownloadError(f"pod {tasks[done[0]]}: {problem.removeprefix('error: ')[:MAX_ERROR_CHARACTERS]}", "")


def run_here(directory: str, arguments: list[str]) -> str:
    """Run the program in this pod. Returns the last line of its errors; empty if it has succeeded."""
    import os
    import subprocess
    import sys

    command = [sys.executable, "-m", "rlt_pod", "download", *arguments]
    environment = {**os.environ, "PYTHONPATH": directory}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", errors="replace")
    return done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}" if done.returncode else ""


def _wait_for_others(ray: Any, nodes: int) -> list[dict[str, Any]]:
    own = ray.get_runtime_context().get_node_id()
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        if len(alive) >= nodes:
            return [node for node in alive if node["NodeID"] != own]
        if time.monotonic() > deadline:
            raise DownloadError(f"Ray has {len(alive)} of {nodes} nodes.", "Inspect the worker pods.")
        time.sleep(INTERVAL_S)
