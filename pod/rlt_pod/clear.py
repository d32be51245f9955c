"""Wait until no process of an earlier program is left in a Ray cluster. The next program runs it beside its imports.

    python3 rlt_pod.pyz clear NODES

NODES is the number of the cluster's pods. Each of them must have one living node in Ray: after the restart of a
container, Ray lists the old raylet for some seconds beside the new one, with the same address. A task on each node then
looks for processes of an earlier program: those below the raylet that are not Ray's, and those with the variables of a
Ray job or worker whose parent has ended. Its NVIDIA GPUs must be free: a driver can release the memory of a process
some seconds after its end. The exit code is 0 if nothing is left, and NOT_CLEAR with a line for each problem that is
left after TIMEOUT_S. Before it ends with 0, it makes the raylets start processes for the next program's actors
(prestart.py). The file has no imports outside of the standard library, rlt_pod and Ray: it runs in the image of the job
(Python 3.8 or later).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rlt_pod import device_memory, dump_stacks
from rlt_pod.device_memory import measure_devices
from rlt_pod.dump_stacks import NO_PRELOAD, count_ancestors, read_command_line, read_processes, read_status
from rlt_pod.prestart import LIMIT, start_processes

NOT_CLEAR = 75
"""The exit code of a Ray job that ends because of this check: EX_TEMPFAIL of sysexits.h. The operator then starts a new
RayCluster, and counts no failure."""
TIMEOUT_S = 60.0
"""Ray ends the actors of a driver that has exited within a second, and lists a lost raylet for up to 30 s."""
INTERVAL_S = 0.5
OF_RAY = re.compile(
    r"^ray::(IDLE|JobSupervisor|DashboardAgent|RuntimeEnvAgent|_ray_internal|inspect_pod)"
    r"|/ray/(dashboard|_private|core)/"
)
"""Command lines of Ray's processes (ray/_private, Ray 2.60)."""
IDLE = re.compile(r"^ray::IDLE|/default_worker\.py ")
"""Command lines of a process without a task, after its imports and before."""
VARIABLES = re.compile(rb"(^|\0)RAY_(JOB_CONFIG_JSON_ENV_VAR|JOB_ID|RAYLET_PID)=")
"""Variables that a driver, a worker and what they start have, and other processes have not (ray/_private, Ray 2.60)."""
MAX_NAMED = 8
"""Maximum number of processes that a line names."""
MAX_USED_SHARE = 0.1
"""Share of a GPU's memory that may be in use, as in the preflight check `accelerators`."""
GIB = 2**30


def main(arguments: list[str]) -> int:
    """Wait, and print what is left. Returns the exit code."""
    if len(arguments) != 1 or not arguments[0].isdecimal():  # else it would join any Ray cluster of the machine
        print("usage: rlt_pod.pyz clear NUMBER-OF-NODES", file=sys.stderr)
        return 2
    ray = import_module("ray")  # the operator has no Ray
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")  # the output is the operator's message
    expected = int(arguments[0])
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        problems = find_stale_nodes(alive, expected)
        missing: dict[str, int] = {}
        if not problems:
            problems, missing = find_processes(ray, alive, deadline)
        if not problems:
            start_processes(alive, missing)
            print(f"clear: {expected} nodes have no process of an earlier program, and free devices", flush=True)
            return 0
        if time.monotonic() > deadline:
            print("\n".join(problems), flush=True)
            return NOT_CLEAR
        time.sleep(INTERVAL_S)


def find_stale_nodes(alive: Sequence[dict[str, Any]], expected: int) -> list[str]:
    """A sentence for each address with several living nodes, and one if their number differs from the pods'."""
    addresses = Counter(str(node["NodeManagerAddress"]) for node in alive)
    stale = [f"Ray lists {count} living nodes at {each}" for each, count in sorted(addresses.items()) if count > 1]
    if not stale and len(alive) != expected:
        stale = [f"Ray has {len(alive)} living nodes instead of {expected}"]
    return stale


def find_processes(ray: Any, alive: Sequence[dict[str, Any]], deadline: float) -> tuple[list[str], dict[str, int]]:
    """A sentence for each node with processes of an earlier program, used devices, or no answer until the deadline.

    Also, by the ID of the node, how many processes for actors it had when its pod started and lacks now.
    """
    strategies = import_module("ray.util.scheduling_strategies")
    for module in (dump_stacks, device_memory):  # the workers cannot import them
        import_module("ray.cloudpickle").register_pickle_by_value(module)
    task = ray.remote(inspect_pod)
    here = ray.get_runtime_context().get_node_id()
    references = {
        task.options(
            num_cpus=0,
            runtime_env={"env_vars": {NO_PRELOAD: "1"}},
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(os.getpid() if node["NodeID"] == here else None): node
        for node in alive
    }
    timeout = max(INTERVAL_S, deadline - time.monotonic())
    ready, late = ray.wait(list(references), num_returns=len(references), timeout=timeout)
    problems = [f"pod {references[each]['NodeManagerHostname']} does not answer" for each in late]
    missing = {}
    for each in ready:
        pod = references[each]["NodeManagerHostname"]
        try:
            found, missing[references[each]["NodeID"]], used = ray.get(each)
        except Exception as error:  # the node was lost meanwhile
            problems.append(f"pod {pod}: {type(error).__name__}")
            continue
        if found:
            named = ", ".join(found[:MAX_NAMED])
            problems.append(f"pod {pod} has {len(found)} processes of an earlier program: {named}")
        elif used:
            problems.append(f"the memory of GPUs in pod {pod} is in use: {', '.join(used)}")
    return sorted(problems), missing


def inspect_pod(check: int | None) -> tuple[list[str], int, list[str]]:
    """Return what list_processes and list_used_devices do, of this pod."""
    return (*list_processes(check), list_used_devices())


def list_used_devices() -> list[str]:
    """The memory in use of each NVIDIA GPU that is not free. Empty without nvidia-smi."""
    return [
        f"{each.used / GIB:.1f} of {each.total / GIB:.1f} GiB"
        for each in measure_devices()
        if each.share > MAX_USED_SHARE
    ]


def list_processes(check: int | None = None) -> tuple[list[str], int]:
    """Pid and name of each process in this pod that belongs neither to Ray nor to the Ray job of this check.

    `check` is the pid of the check if it runs in this pod. Also, how many idle processes the pod lacks, with those that
    still make their imports: LIMIT is the number of its actors.
    """
    processes = dict(read_processes())
    raylet = os.getpid()
    while raylet > 1 and processes[raylet][1] != "raylet":
        raylet = processes[raylet][0]
    lines = {pid: read_command_line(pid) for pid in processes}
    own = find_own([os.getpid(), *([] if check is None else [check])], raylet, processes)
    found = []
    below = {raylet}
    for pid in sorted(processes, key=lambda pid: count_ancestors(pid, processes)):
        if processes[pid][0] in below:
            below.add(pid)
        elif not VARIABLES.search(read_environment(pid)):
            continue
        line = lines[pid]
        is_left = line and pid not in own and not OF_RAY.search(line)
        if is_left and not read_status(pid).get("State", "").startswith("Z"):
            found.append(f"{pid} {line.split()[0][:80]}")
    idle = sum(bool(IDLE.search(line)) for pid, line in lines.items() if processes[pid][0] == raylet)
    return found, max(0, int(os.environ.get(LIMIT, "0")) - idle)


def read_environment(pid: int) -> bytes:
    """The variables with which a process started; empty if it has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def find_own(starts: Sequence[int], raylet: int, processes: dict[int, tuple[int, str]]) -> set[int]:
    """The processes of the task and of the program that waits: all that the same children of the raylet have started.

    Ray's JobSupervisor starts the program, and a second shell that kills the program if the supervisor dies.
    """
    own = {raylet}
    for start in starts:
        pid = start
        while pid in processes and processes[pid][0] != raylet:
            pid = processes[pid][0]
        own |= {pid} & set(processes)  # a process that is not below the raylet leads to none
    for pid in sorted(processes, key=lambda pid: count_ancestors(pid, processes)):
        if processes[pid][0] in own - {raylet}:
            own.add(pid)
    return own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
