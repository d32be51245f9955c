"""Write the stacks of all Python processes in a Ray cluster, to find where a training is stuck. A Ray job runs it.

    python3 rlt_pod.pyz dump-stacks DIRECTORY

A task on each node runs py-spy on the Python processes below its raylet: the driver, the Ray workers and their
children. Without py-spy, or where the kernel does not permit it, processes that write their own stacks on SIGUSR1 do so
(rlt_trainer/cluster/stack_signal.py). The driver writes DIRECTORY/POD-PID.txt for each process. The last line of the
output is PREFIX and a JSON object. The file has no imports outside of the standard library and Ray, because it runs in
the image of the job (Python 3.8 or later).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

PREFIX = "rlt-stacks "
"""Start of the output's last line."""
STACK_FILE = "/memfd:rlt-stacks "
"""Start of the file name to which a process writes its stacks on SIGUSR1 (rlt_pod.report.driver_report)."""
NO_PRELOAD = "RLT_NO_PRELOAD"
"""Variable of a process that imports no trainer (rlt_pod.report.driver_report): its pod may lack memory."""
TIMEOUT_S = 60
"""Time for all nodes together."""
PROCESS_TIMEOUT_S = 10
"""Time for one process. A process that is stopped or waits for a device does not answer."""
ATTEMPTS = 3
"""Times that py-spy is run: it fails if the stack changes while it reads it."""
MAX_PROCESSES = 64
"""Maximum number of processes on a node."""
MAX_BYTES = 64 * 1024
"""Maximum size of one process's stacks."""
OF_RAY = re.compile(
    r"^ray::(IDLE|JobSupervisor|DashboardAgent|RuntimeEnvAgent|_ray_internal|dump_node)"
    r"|/ray/dashboard/|/rlt_pod\.pyz dump-stacks "
)
"""Command lines of Ray's processes and of this program (ray/_private, Ray 2.60)."""

NO_STACKS = "no stacks: "
"""Start of the text about a process without stacks."""
TITLE = re.compile(r"^ray::(\w+)(?:\.(\w+))?", re.MULTILINE)
"""Title of a Ray process: the class of the actor, and the method that it runs."""
FRAME = re.compile(
    r"^ +(?P<function>\S.*) \((?P<file>[^()]+):(?P<line>\d+)\)$"  # py-spy
    r'|^  File "(?P<path>.+)", line (?P<number>\d+) in (?P<name>.+)$',  # faulthandler
    re.MULTILINE,
)
LIBRARIES = {"torch", "ray", "numpy", *(Path(name).stem for name in os.listdir(os.path.dirname(os.__file__)))}
"""Modules whose frames do not show where a program is: these and the standard library."""
MAX_NAMED = 4
"""Maximum number of processes that the summary names."""
STATE = " [state: "
"""Begins the state of a process that cannot run: stopped, or waiting in the kernel."""


def main(arguments: list[str]) -> int:
    """Write the stacks of all nodes. The exit code is 0 if there are stacks of at least one process."""
    if len(arguments) != 1 or arguments[0].startswith("-"):  # else it would join any Ray cluster of the machine
        print("usage: rlt_pod.pyz dump-stacks DIRECTORY", file=sys.stderr)
        return 2
    # The operator reads PREFIX and has no Ray.
    ray = import_module("ray")
    strategies = import_module("ray.util.scheduling_strategies")
    directory = Path(arguments[0])
    ray.init(address="auto", log_to_driver=False)
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    task = ray.remote(dump_node)
    references = {
        task.options(
            num_cpus=0,
            runtime_env={"env_vars": {NO_PRELOAD: "1"}},
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id, soft=False),
        ).remote(): host
        for node_id, host in nodes.items()
    }
    ready, late = ray.wait(list(references), num_returns=len(references), timeout=TIMEOUT_S)
    missing = [references[reference] for reference in late]
    found: dict[str, list[tuple[int, str]]] = {}
    for reference in ready:
        try:
            found[references[reference]] = ray.get(reference)
        except Exception as error:  # one node must not hide the others
            print(f"{references[reference]}: {type(error).__name__}: {str(error).strip()[:300]}")
            missing.append(references[reference])
    report = write_stacks(directory, found)
    report["missing"] = sorted(missing)
    report["summary"] = f"{describe_demand(ray)} {summarize_stacks(found)}".strip()
    print(PREFIX + json.dumps(report), flush=True)
    return 0 if report["processes"] else 1


def describe_demand(ray: Any) -> str:
    """A sentence on the resources that tasks, actors and placement groups wait for; empty if they wait for none.

    Without Ray's autoscaler, which the operator does not run, Ray prints nothing about them.
    """
    try:
        status = import_module("ray.autoscaler.v2.sdk").get_cluster_status(ray.get_runtime_context().gcs_address)
        demands = status.resource_demands
        wanted = [format_bundles(each) for each in demands.ray_task_actor_demand]
        wanted += [f"a placement group of {format_bundles(each)}" for each in demands.placement_group_demand]
        nodes = [count_devices(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    except Exception as error:  # an older Ray, or one whose head does not respond
        print(f"the demand for resources is not known: {type(error).__name__}: {error}")
        return ""
    counts = Counter(str(each) for each in nodes if each)  # the head has none
    have = ", ".join(f"{count} x {each}" if count > 1 else each for each, count in sorted(counts.items()))
    return f"Ray waits for resources: {', '.join(wanted[:MAX_NAMED])}. Its nodes have {have}." if wanted else ""


def format_bundles(demand: Any) -> str:
    """The bundles of a demand, each with its number."""
    return " and ".join(f"{each.count} x {each.bundle}" for each in demand.bundles_by_count)


def count_devices(resources: dict[str, float]) -> dict[str, float]:
    """The resources of a node that programs ask for, without Ray's own."""
    own = ("node:", "memory", "object_store_memory", "accelerator_type:")
    return {name: amount for name, amount in sorted(resources.items()) if not name.startswith(own)}


def write_stacks(directory: Path, found: dict[str, list[tuple[int, str]]]) -> dict[str, Any]:
    """Write and print the stacks. Returns the report: files that cannot be written are in `error`."""
    report: dict[str, Any] = {"directory": str(directory), "processes": 0, "pods": 0}
    for pod, processes in sorted(found.items()):
        with_stacks = [each for each in processes if not each[1].startswith(NO_STACKS)]
        report["processes"] += len(with_stacks)
        report["pods"] += bool(with_stacks)
        for pid, text in processes:
            print(f"--- {pod} {pid}\n{text}", flush=True)
            try:
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"{pod}-{pid}.txt").write_text(text, encoding="utf-8")
            except OSError as error:
                report["error"] = f"{directory}: {error.strerror}"
    return report


def summarize_stacks(found: dict[str, list[tuple[int, str]]]) -> str:
    """A sentence on each class of actors that runs a method: which method, and which actors are elsewhere than most.
    If none runs a method, where the other processes are, such as the driver.

    Ranks that wait for a collective are at the same line. The late one is elsewhere, or is stopped.
    """
    actors: dict[str, dict[str, tuple[str, str]]] = {}
    others: dict[str, tuple[str, str]] = {}
    for pod, processes in sorted(found.items()):
        for pid, text in processes:
            title = TITLE.search(text)
            if not title and not text.startswith(NO_STACKS):
                others[f"{pod} {pid}"] = ("", find_place(text, ""))
            elif title:
                method = title[2] or ""
                actors.setdefault(title[1], {})[f"{pod} {pid}"] = (method, find_place(text, method))
    late = []
    together = []
    for name, places in sorted(actors.items()):
        if not any(method for method, _ in places.values()):  # they wait for the driver
            if unable := {process: place for process, place in places.items() if STATE in place[1]}:
                who = f"{len(unable)} of {len(places)} processes of {name}"
                late.append(f"{who} cannot run: {format_places(unable, name)}.")
            continue
        able = [place for place in places.values() if STATE not in place[1]] or list(places.values())
        (most, count), *_ = Counter(able).most_common(1)
        phase = f"{name}.{most[0]}" if most[0] else name
        elsewhere = {process: place for process, place in places.items() if place != most}
        if not elsewhere:
            who = f"All {count} processes of {phase} are" if count > 1 else f"{phase} is"
            together.append(f"{who} in {most[1]}.")
        elif count * 2 > len(able):
            who = f"{len(elsewhere)} of {len(places)} processes of {phase} {'is' if len(elsewhere) == 1 else 'are'}"
            others_are = "the other is" if len(places) - len(elsewhere) == 1 else "the others are"
            late.append(f"{who} elsewhere: {format_places(elsewhere, most[0])}; {others_are} in {most[1]}.")
        else:
            late.append(f"The {len(places)} processes of {name} are in different places: {format_places(places, '')}.")
    if late or together or not others:
        return " ".join(late or together)
    return f"No actor runs a method. Other processes: {format_places(others, '')}."


def format_places(places: dict[str, tuple[str, str]], phase: str) -> str:
    """Each process with its place, and with its method where that is not `phase`."""
    parts = []
    for process, (method, place) in list(places.items())[:MAX_NAMED]:
        doing = f" in {method}," if method else ", idle,"
        parts.append(f"{process}{'' if method == phase else doing} in {place}")
    return "; ".join(parts) + (f"; {len(places) - MAX_NAMED} more" if len(places) > MAX_NAMED else "")


def find_place(text: str, method: str) -> str:
    """The innermost frame outside of LIBRARIES, of the thread that runs the method, and whether the process can run."""
    state = re.search(r"^state: ([TD] .*)", text, re.MULTILINE)
    suffix = f"{STATE}{state[1]}]" if state else ""
    threads = []
    for part in re.split(r"^(?:Current thread|Thread) ", text, flags=re.MULTILINE)[1:]:
        frames = [
            (each["function"] or each["name"], shorten(each["file"] or each["path"]), each["line"] or each["number"])
            for each in FRAME.finditer(part)
        ]
        threads.append(frames)
    running = [frames for frames in threads if any(each[0].rpartition(".")[2] == method for each in frames)]
    chosen = (running or threads or [[]])[0]
    own = [each for each in chosen if not is_library(each[1])] or chosen
    if not own:
        return "an unknown place" + suffix
    function, file, line = own[0]
    return f"{function} ({file}:{line}){suffix}"


def shorten(file: str) -> str:
    """The path below sys.path, as from py-spy. faulthandler gives whole paths."""
    return re.sub(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/", "", file)


def is_library(file: str) -> bool:
    """Whether the file, below sys.path, is part of LIBRARIES."""
    module = file.partition("/")[0]
    return module.startswith("<frozen") or module.partition(".")[0] in LIBRARIES


def dump_node() -> list[tuple[int, str]]:
    """The pid of each Python process on this node, and the text about it."""
    pids = find_processes()
    with ThreadPoolExecutor(8) as pool:
        return [(pid, text) for pid, text in zip(pids, pool.map(dump_process, pids))]  # noqa: B905 (Python 3.8)


def find_processes() -> list[int]:
    """Python processes that the raylet of this node has started, without Ray's own and this program."""
    processes = dict(read_processes())
    raylet = os.getpid()
    while raylet > 1 and processes[raylet][1] != "raylet":
        raylet = processes[raylet][0]
    found = []
    below = {raylet}
    for pid in sorted(processes, key=lambda pid: count_ancestors(pid, processes)):
        if processes[pid][0] not in below:
            continue
        below.add(pid)
        line = read_command_line(pid)
        if line and pid != os.getpid() and not OF_RAY.search(line) and is_python(pid):
            found.append(pid)
    return found[:MAX_PROCESSES]


def read_processes() -> list[tuple[int, tuple[int, str]]]:
    """Pid -> parent and name of all processes, from /proc (proc_pid_stat(5))."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path("/proc", name, "stat").read_text(errors="replace")
                end = text.rindex(")")
                found.append((int(name), (int(text[end + 2 :].split()[1]), text[text.index("(") + 1 : end])))
            except (OSError, ValueError):
                continue  # it has ended
    return found


def count_ancestors(pid: int, processes: dict[int, tuple[int, str]]) -> int:
    """How many processes are above this one."""
    count = 0
    while pid in processes:
        pid = processes[pid][0]
        count += 1
    return count


def read_command_line(pid: int) -> str:
    """The command line; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def is_python(pid: int) -> bool:
    """Whether the process runs a Python interpreter."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def dump_process(pid: int) -> str:
    """The stacks of a process, with its state and the start of its command line."""
    status = read_status(pid)
    heading = f"{' '.join(read_command_line(pid).split())[:100]}\nstate: {status.get('State', 'ended')}\n"
    try:
        return (heading + run_py_spy(pid))[:MAX_BYTES]
    except Exception as error:
        reason = str(error)
    try:
        return (heading + request_stacks(pid, status))[:MAX_BYTES]
    except Exception as error:  # one process must not hide the others
        return f"{NO_STACKS}{reason}; {error}\n{heading}"[:MAX_BYTES]


def run_py_spy(pid: int) -> str:
    """The stacks from py-spy, which reads the memory of the process and does not pause it. Raises ValueError, OSError,
    or TimeoutExpired."""
    program = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if program is None:
        raise ValueError("py-spy is not installed")
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, capture_output=True, timeout=PROCESS_TIMEOUT_S, check=False)
        if done.returncode == 0 and b"\nThread " in done.stdout:
            text = done.stdout.decode(errors="replace")
            return text[text.index("\nThread ") + 1 :]  # the whole command line is before it
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    raise ValueError(f"py-spy: {(lines or [f'exit code {done.returncode}'])[0]}")


def request_stacks(pid: int, status: dict[str, str]) -> str:
    """The stacks that the process itself writes on SIGUSR1. Raises ValueError or OSError.

    The signal ends a process that has no handler.
    """
    file = find_stack_file(pid)
    if file is None or not int(status.get("SigCgt", "0"), 16) >> (signal.SIGUSR1 - 1) & 1:
        raise ValueError("the process does not write its own stacks")
    before = text = file.read_bytes()
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + PROCESS_TIMEOUT_S
    while time.monotonic() < end:
        time.sleep(0.2)
        previous = text
        text = file.read_bytes()
        if text != before and text == previous:
            return text[len(before) :].decode(errors="replace")
    raise ValueError("the process did not write its stacks")


def find_stack_file(pid: int) -> Path | None:
    """The open file to which the process writes its stacks. Raises OSError."""
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(file).startswith(STACK_FILE):
                return file
        except OSError:
            continue  # it was closed
    return None


def read_status(pid: int) -> dict[str, str]:
    """Fields of /proc/PID/status; empty if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
