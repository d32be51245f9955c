"""Running jobs of many namespaces on several shards: as many as the memory and the time of this machine permit."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from operator_bench.environment import running
from operator_bench.measurements import FOREVER, set_training
from operator_bench.objects import create_all, create_namespace, make_job
from operator_bench.observer import Observer, connecting, get_phase, observing
from operator_bench.processes import Operator, make_operator, read_cpu_s
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_core.shards import choose_shard
from rlt_e2e.cluster import Cluster, processes

SHARDS = 4
NAMESPACES_OF_A_SHARD = 4
FIRST_PORT = 9010
"""Of the metrics of the first shard."""
LEASE = "--leader-election-lease=default/rlt-operator"
BATCH = 40
"""Jobs that start at the same time: on a machine with two cores, more of them delay the renewals of the Leases."""
MIN_FREE_MB = 2000.0
"""Memory of the machine that stays free: below it no more jobs start."""
STEP_S = 10.0
SETTLE_S = 30.0
WATCH_S = 60.0
RUNNING = 'rlt_operator_jobs{phase="Running",reason="Started"}'


@dataclass(frozen=True)
class Usage:
    """What was used until a time, or between two. The lists have a figure for each shard."""

    seconds: float
    jobs: list[int]
    """Running jobs at the end."""
    memory_mb: list[float]
    """At the end."""
    cpu_s: list[float]
    requests: Counter[str]
    """Requests of all shards, by method and resource."""
    api_server_cpu_s: float
    etcd_written_mb: float
    """What etcd has written to its files."""
    etcd_stored_mb: float
    """Size of its database file at the end."""

    def __sub__(self, before: Usage) -> Usage:
        return replace(
            self,
            seconds=self.seconds - before.seconds,
            cpu_s=[after - earlier for after, earlier in zip(self.cpu_s, before.cpu_s, strict=True)],
            requests=self.requests - before.requests,
            api_server_cpu_s=self.api_server_cpu_s - before.api_server_cpu_s,
            etcd_written_mb=self.etcd_written_mb - before.etcd_written_mb,
        )


@dataclass(frozen=True)
class Sharded:
    """Running jobs on shards."""

    wanted: int
    count: int
    """Jobs that are Running."""
    limit: str
    """What stopped the start of more jobs; empty if all run."""
    start_s: float
    restarts: int
    """Processes that lost their Lease while jobs started, for lack of CPU, and started again as in a pod."""
    used: Usage


async def measure_shards(cluster: Cluster, wanted: int, limit_s: float) -> Sharded:
    """Start the shards and the jobs, and measure while the jobs run and report a step every 10 s.

    `limit_s`: time for the start of the jobs, in seconds.
    """
    shards = [make_shard(cluster, number) for number in range(SHARDS)]
    set_training(seconds_per_step=STEP_S, total_steps=FOREVER)
    async with connecting(cluster.kubeconfig) as api:
        namespaces = choose_namespaces()
        for name in namespaces:
            await create_namespace(api, name)
        with running(*shards):
            for each in shards:
                each.wait()
            restarted: list[str] = []
            keeping = asyncio.create_task(_restart(shards, restarted))
            async with observing(api, api_paths.jobs(None), get_phase) as jobs:
                started = time.monotonic()
                limit = await _start_jobs(api, jobs, namespaces, wanted, limit_s)
                start_s = time.monotonic() - started
                await asyncio.sleep(SETTLE_S)
                keeping.cancel()
                count = jobs.count("Running")
                before = _take(cluster, shards)
                await asyncio.sleep(WATCH_S)
                used = _take(cluster, shards) - before
    return Sharded(wanted, count, limit, start_s, len(restarted), used)


async def _restart(shards: Sequence[Operator], restarted: list[str]) -> None:
    """Start each shard again that ends. Adds its name to the list."""
    while True:
        for each in shards:
            if each.popen and each.popen.poll() is not None:
                print(f"{each.name} has ended and starts again", flush=True)
                restarted.append(each.name)
                each.start()
        await asyncio.sleep(1)


async def _start_jobs(
    api: KubernetesApi, jobs: Observer, namespaces: Sequence[str], wanted: int, limit_s: float
) -> str:
    """Start jobs in batches until all are Running. Returns what stopped it; empty if nothing did."""
    try:
        async with asyncio.timeout(limit_s):
            for first in range(0, wanted, BATCH):
                if read_free_mb() < MIN_FREE_MB:
                    return f"{MIN_FREE_MB:.0f} MB of memory are left"
                numbers = range(first, min(first + BATCH, wanted))
                by_namespace = {name: list(numbers[at :: len(namespaces)]) for at, name in enumerate(namespaces)}
                await asyncio.gather(
                    *(
                        create_all(api, api_paths.jobs(name), [make_job(name, f"job-{number}") for number in own])
                        for name, own in by_namespace.items()
                    )
                )
                count = numbers.stop
                await jobs.wait(lambda: jobs.count("Running") >= count, f"{count} jobs are Running")  # noqa: B023
                print(f"{count} jobs are Running, {read_free_mb():.0f} MB of memory are free", flush=True)
    except TimeoutError:
        return f"{limit_s / 60:.0f} minutes are over"
    return ""


def make_shard(cluster: Cluster, number: int) -> Operator:
    """The process of a shard."""
    options = (f"--shard={number}/{SHARDS}", LEASE)
    return make_operator(cluster, name=f"shard-{number}", port=FIRST_PORT + number, options=options)


def choose_namespaces() -> list[str]:
    """Names of namespaces, the same number of each shard."""
    found: dict[int, list[str]] = {number: [] for number in range(SHARDS)}
    for number in itertools.count():
        name = f"team-{number}"
        of_shard = found[choose_shard(name, SHARDS)]
        if len(of_shard) < NAMESPACES_OF_A_SHARD:
            of_shard.append(name)
        if all(len(each) == NAMESPACES_OF_A_SHARD for each in found.values()):
            break
    return [name for names in zip(*found.values(), strict=True) for name in names]


def read_free_mb() -> float:
    """Memory that programs can still get."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1000


def _take(cluster: Cluster, shards: Sequence[Operator]) -> Usage:
    layout = cluster.layout
    assert layout
    pids = {each.name: each.pid for each in processes.list_running(layout.state)}
    written = re.search(r"^write_bytes: (\d+)$", Path(f"/proc/{pids['etcd']}/io").read_text(), re.MULTILINE)
    assert written
    return Usage(
        seconds=time.monotonic(),
        jobs=[round(each.metric_or_zero(RUNNING)) for each in shards],
        memory_mb=[each.memory_mb() for each in shards],
        cpu_s=[each.cpu_s() for each in shards],
        requests=sum((each.requests() for each in shards), Counter[str]()),
        api_server_cpu_s=read_cpu_s(pids["kube-apiserver"]),
        etcd_written_mb=int(written[1]) / 1e6,
        etcd_stored_mb=(layout.state / "etcd/member/snap/db").stat().st_size / 1e6,
    )
