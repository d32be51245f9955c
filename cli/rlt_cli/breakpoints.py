"""Breakpoints of a Ray program at which a process waits for a debugger, from Ray's state API. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlt_cli.table import format_table
from rlt_core.job import Manifest

WORKERS = (
    "/api/v0/workers?detail=true&limit=10000"
    "&filter_keys=is_alive&filter_predicates=%3D&filter_values=True"
    "&filter_keys=num_paused_threads&filter_predicates=!%3D&filter_values=0"
)
"""Processes with paused threads (ray/util/state, ray/util/debugpy.py, Ray 2.60). The debugger of VS Code reads the
same."""
TASKS = "/api/v0/tasks?detail=true&limit=10000&filter_keys=state&filter_predicates=%3D&filter_values=RUNNING"
"""Tasks and methods that run, with the IDs of their processes."""
ID_LENGTH = 8


@dataclass(frozen=True)
class Breakpoint:
    """A process that waits for a debugger."""

    id: str
    """The start of Ray's ID of the process."""
    pod: str
    """Name of the pod; the IP if no pod has it."""
    ip: str
    """The address at which debugpy listens, which is not the loopback interface."""
    port: int
    pid: int
    task: str
    """The task or method that runs, such as `TrainWorker.update_actor`."""


def parse_breakpoints(workers: str, tasks: str, pods: Sequence[Manifest]) -> list[Breakpoint]:
    """Parse the responses to WORKERS and TASKS."""
    names = {pod.get("status", {}).get("podIP"): pod["metadata"]["name"] for pod in pods}
    running = {task["worker_id"]: str(task["name"]) for task in _parse_list(tasks)}
    return [
        Breakpoint(
            id=worker["worker_id"][:ID_LENGTH],
            pod=names.get(worker["ip"], worker["ip"]),
            ip=worker["ip"],
            port=worker["debugger_port"],
            pid=worker["pid"],
            task=running.get(worker["worker_id"]) or str(worker["worker_type"]).lower(),
        )
        for worker in _parse_list(workers)
        if worker.get("num_paused_threads") and worker.get("debugger_port")  # since Ray 2.39
    ]


def format_breakpoints(breakpoints: Sequence[Breakpoint], width: int | None = None) -> str:
    """The table of breakpoints."""
    rows = [(each.id, each.pod, each.pid, each.task) for each in breakpoints]
    return format_table(("ID", "POD", "PID", "TASK"), rows, width)


def build_launch_configuration(name: str, port: int, remote_root: str) -> dict[str, Any]:
    """Build a configuration of .vscode/launch.json that attaches to a port on this machine.

    `remote_root`: the folder in the pod that corresponds to the opened one.
    """
    return {
        "name": name,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": remote_root}],
        "justMyCode": False,
    }


def _parse_list(text: str) -> list[Mapping[str, Any]]:
    """The items in a response of Ray's state API."""
    items: list[Mapping[str, Any]] = json.loads(text)["data"]["result"]["result"]
    return items
