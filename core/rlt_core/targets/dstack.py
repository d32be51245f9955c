"""A fleet and a task of dstack: https://dstack.ai/docs/reference/dstack.yml/task"""

from __future__ import annotations

import shlex
from math import ceil
from typing import Any

from rlt_core.children.pod_template import GCS_PORT
from rlt_core.names import DASHBOARD_PORT
from rlt_core.targets.launch import POD_USER, Launch
from rlt_core.targets.ray import build_head_options
from rlt_core.targets.shell import JOIN_TIMEOUT_S, build_await_nodes, build_files, build_node_choice

GIB = 2**30


def build_fleet(launch: Launch) -> dict[str, Any]:
    """Build the fleet: machines close to each other, which dstack creates for the first task."""
    nodes = {"nodes": launch.nodes, "placement": "cluster"} if launch.nodes > 1 else {"nodes": 1}
    return {"type": "fleet", "name": launch.name, **nodes, "resources": _build_resources(launch)}


def build_task(launch: Launch) -> dict[str, Any]:
    """Build the task. It ends with the program on the first node."""
    token = ["RAY_AUTH_TOKEN"] if launch.has_token else []
    mode = f"RAY_AUTH_MODE={'token' if launch.has_token else 'disabled'}"
    values = [f"{name}={value}" for name, value in launch.environment.items() if name not in POD_USER]
    optional = {
        "nodes": launch.nodes if launch.nodes > 1 else None,
        "stop_criteria": "master-done" if launch.nodes > 1 else None,
        "max_duration": launch.run_seconds,
        "privileged": launch.is_privileged or None,
    }
    return {
        "type": "task",
        "name": launch.name,
        "fleets": [launch.name],
        "image": launch.image,
        "shell": "bash",
        **{name: value for name, value in optional.items() if value is not None},
        "env": [*values, mode, *token, *launch.inherited],
        "commands": ["\n".join(_build_commands(launch))],
        "ports": [DASHBOARD_PORT],
        "resources": _build_resources(launch),
        "files": [f"{name_programs_file(launch)}:{launch.encoded_programs}"],
        "volumes": [f"{path}:{path}" for path in launch.mounts],
    }


def name_programs_file(launch: Launch) -> str:
    """Name of the file beside the task with the programs. A command of dstack has at most 128 KiB, as one argument."""
    return f"{launch.name}.programs.base85"


def _build_commands(launch: Launch) -> list[str]:
    """The script of every node. `ray start --block` keeps the other nodes until the first one ends the task."""
    files = {**launch.files, **build_await_nodes(launch)}
    dashboard = f"http://127.0.0.1:{DASHBOARD_PORT}"
    names = " ".join(f"node-{rank}" for rank in range(launch.nodes))
    return [
        *build_files(files),
        *build_node_choice(launch, "DSTACK_NODE_RANK"),
        'node+=(--node-name="node-$DSTACK_NODE_RANK")',
        'if [ "$DSTACK_NODE_RANK" -eq 0 ]; then',
        f'  ray start "${{node[@]}}" {" ".join(build_head_options())}',
        f"  python3 {shlex.quote(next(iter(build_await_nodes(launch))))} {dashboard} {JOIN_TIMEOUT_S} {names}",
        f"  ray job submit --address={dashboard} -- bash {shlex.quote(launch.program)}",
        "else",
        f'  until (exec 3<> "/dev/tcp/$DSTACK_MASTER_NODE_IP/{GCS_PORT}") 2> /dev/null; do sleep 1; done',
        f'  ray start "${{node[@]}}" --address="$DSTACK_MASTER_NODE_IP:{GCS_PORT}" --block',
        "fi",
    ]


def _build_resources(launch: Launch) -> dict[str, Any]:
    """The resources of a node: dstack gives all nodes the same, so that the largest group counts."""
    groups = launch.groups
    largest = max(groups, key=lambda group: group.devices)
    memory = max(group.memory for group in groups) + launch.head_memory
    resources: dict[str, Any] = {
        "cpu": f"{max(group.cpus for group in groups)}..",
        "memory": f"{ceil(memory / GIB)}GB..",
        "shm_size": f"{ceil(max(group.shared_memory for group in groups) / GIB)}GB",
    }
    if largest.devices:
        device_memory = {"memory": f"{largest.device_memory // GIB}GB.."} if largest.device_memory else {}
        resources["gpu"] = {"vendor": launch.vendor, "count": largest.devices, **device_memory}
    return resources
