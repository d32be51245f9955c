"""What is left of an earlier program: Ray's nodes, and real processes below a process with the name of a raylet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlt_pod.clear import find_own, find_stale_nodes, list_used_devices
from rlt_pod.prestart import LIMIT

RAYLET = """
import json, os, signal, subprocess, sys
open("/proc/self/comm", "w").write("raylet")
wait = "import sys; sys.stdin.read()"
children = [
    subprocess.Popen([name, "-c", wait], executable=sys.executable, stdin=subprocess.PIPE)
    for name in json.loads(sys.argv[1])
]
start = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
orphan = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True, env=json.loads(sys.argv[2]))
orphan = int(orphan.stdout)
try:
    look = "from rlt_pod.clear import list_processes; found, lacks = list_processes(); print(found); print(lacks)"
    subprocess.run([sys.executable, "-c", look], check=True)
finally:
    os.kill(orphan, signal.SIGKILL)
    print([child.pid for child in children] + [orphan])
    for child in children:
        child.communicate()
"""
"""A raylet with children of these names, and a worker that lists the processes. The parent of a process with these
variables has ended."""


def node(address: str) -> dict[str, Any]:
    return {"NodeManagerAddress": address, "NodeID": address, "NodeManagerHostname": address}


@pytest.mark.parametrize(
    ("addresses", "problems"),
    [
        (["10.0.0.1", "10.0.0.2"], []),
        (["10.0.0.1", "10.0.0.2", "10.0.0.2"], ["Ray lists 2 living nodes at 10.0.0.2"]),
        (["10.0.0.1"], ["Ray has 1 living nodes instead of 2"]),
        (["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["Ray has 3 living nodes instead of 2"]),
    ],
)
def test_a_pod_has_one_living_node(addresses: list[str], problems: list[str]) -> None:
    assert find_stale_nodes([node(each) for each in addresses], 2) == problems


@pytest.mark.parametrize(
    ("children", "variables", "left"),
    [
        (["ray::IDLE", "ray::JobSupervisor"], {}, []),
        (["ray::IDLE", "ray::TrainWorker.update_actor"], {}, ["ray::TrainWorker.update_actor"]),
        (["rlt-trainer", "VLLM::EngineCore"], {"RAY_ADDRESS": "auto"}, ["VLLM::EngineCore", "rlt-trainer"]),
        (["python3 /etc/rlt/rlt_pod.pyz clear 3"], {}, ["python3"]),
        (["ray::IDLE"], {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, ["sleep"]),
    ],
)
def test_processes_that_are_not_rays_are_found(children: list[str], variables: dict[str, str], left: list[str]) -> None:
    """Other processes of this machine may belong to another Ray: a pod has none."""
    listed, _, started = look(children, variables)
    found = (each.split(" ", 1) for each in listed)
    assert sorted(name for pid, name in found if int(pid) in started) == left


@pytest.mark.parametrize(
    ("children", "missing"),
    [
        (["ray::IDLE", "ray::TrainWorker"], 2),
        (["ray::IDLE", "/ray/_private/workers/default_worker.py"], 1),
        (["ray::IDLE"] * 4, 0),
    ],
)
def test_the_processes_that_the_next_program_lacks_are_counted(children: list[str], missing: int) -> None:
    """A process without a task counts before its imports, too."""
    assert look(children, {}, **{LIMIT: "3"})[1] == missing


@pytest.mark.parametrize(
    ("output", "used"),
    [
        ("312, 81559\n4, 81559\n", []),
        ("312, 81559\n71680, 81920\n", ["70.0 of 80.0 GiB"]),
        ("[N/A], [N/A]\n", []),
    ],
    ids=["free", "used", "unknown"],
)
def test_a_gpu_whose_memory_is_in_use_is_not_free(
    output: str, used: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has the output of nvidia-smi, which this machine does not have."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{output}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert list_used_devices() == used


def look(children: list[str], variables: dict[str, str], **environment: str) -> list[Any]:
    """Return what list_processes does, and the pids of the processes."""
    ran = subprocess.run(
        [sys.executable, "-c", RAYLET, json.dumps(children), json.dumps(variables)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment},
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line.replace("'", '"')) for line in ran.stdout.splitlines()]


def test_the_check_does_not_find_what_its_own_ray_job_has_started() -> None:
    children = {10: [20, 30, 40], 20: [21, 23], 21: [22], 23: [24], 40: [41]}
    processes = {1: (0, "tini"), 10: (1, "raylet"), 50: (1, "sleep")}
    processes |= {pid: (parent, "") for parent, pids in children.items() for pid in pids}
    assert find_own([30, 22], 10, processes) == {10, 20, 21, 22, 23, 24, 30}
    assert find_own([50, 22], 10, processes) == {10, 20, 21, 22, 23, 24}, "not below the raylet"
