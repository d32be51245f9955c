"""The page of a cluster with 200 jobs and 20 users with an open list: memory and CPU time of the server."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import httpx
import pytest
from cluster_page import serve_cluster
from simulated_api_server import SimulatedApiServer

pytestmark = pytest.mark.slow
JOBS = 200
VIEWERS = 20
MAX_ROUNDS = 3
"""Other programs of the machine disturb a round: the server takes more time while they use its caches."""
ROUND_S = 10.0
"""Interval between two changes of every job's status."""
MAX_MEMORY = 200 * 10**6
MAX_SHARE = 0.05
"""Maximum CPU time per wall-clock time, in cores."""


def build_cluster() -> SimulatedApiServer:
    """Jobs of 2 kB in two namespaces, and the viewers, who can list them."""
    names = [f"viewer-{number}" for number in range(VIEWERS)]
    simulated = SimulatedApiServer(users={f"{name}.token": name for name in names})
    simulated.rights = {(name, "list", namespace, "") for name in names for namespace in ("a", "b")}
    for number in range(JOBS):
        simulated.add_job("ab"[number % 2], f"job-{number}")
        simulated.jobs[-1]["spec"] = {"framework": {"type": "command", "command": ["x" * 1000]}}
        simulated.jobs[-1]["status"] |= {"model": "Qwen/Qwen3-8B", "gpus": 16, "message": "m" * 500}
    return simulated


def complete_step(simulated: SimulatedApiServer, step: int) -> None:
    for job in simulated.jobs:
        job["metadata"]["resourceVersion"] = str(step)
        job["status"]["progress"] = {"step": step, "totalSteps": 9, "metrics": {"reward": step / 9}}


def read_cpu_time(pid: int) -> float:
    """CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_peak_memory(pid: int) -> int:
    """Peak resident memory of a process in bytes."""
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


async def view(client: httpx.AsyncClient, token: str, steps: list[int]) -> None:
    """Follow the list as app.js does: read it at the start, and after each change. `steps` gets the step of a job."""
    headers = {"authorization": f"Bearer {token}"}
    async with client.stream("GET", "/api/events", headers=headers) as events:
        async for line in events.aiter_lines():
            if line == "event: version":
                found = (await client.get("/api/runs", headers=headers)).json()["runs"]
                assert len(found) == JOBS
                steps.append(found[0]["step"])


async def measure(url: str, server: int, simulated: SimulatedApiServer) -> list[float]:
    """The shares of a core that the server takes in each round, up to the first one that is small enough."""
    shares = []
    seen: list[list[int]] = [[] for _ in range(VIEWERS)]
    limits = httpx.Limits(max_connections=2 * VIEWERS)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client, asyncio.TaskGroup() as tasks:
        viewers = [tasks.create_task(view(client, f"viewer-{n}.token", steps)) for n, steps in enumerate(seen)]
        while not all(seen):
            await asyncio.sleep(0.1)
        for step in range(1, MAX_ROUNDS + 1):
            started = time.monotonic()
            used = read_cpu_time(server)
            complete_step(simulated, step)
            await asyncio.sleep(ROUND_S)
            shares.append((read_cpu_time(server) - used) / (time.monotonic() - started))
            while not all(steps[-1] == step for steps in seen):
                await asyncio.sleep(0.1)
            if shares[-1] < MAX_SHARE:
                break
        for each in viewers:
            each.cancel()
    return shares


async def test_200_jobs_and_20_viewers_take_little_memory_and_cpu_time(tmp_path: Path) -> None:
    simulated = build_cluster()
    complete_step(simulated, 0)
    with serve_cluster(simulated, tmp_path) as (url, server):
        shares = await measure(url, server, simulated)
        memory = read_peak_memory(server)
    print("memory", memory, "shares", shares)
    assert memory < MAX_MEMORY
    assert shares[-1] < MAX_SHARE
