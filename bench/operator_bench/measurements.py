"""What is measured. Each function leaves the control plane as it was, except for objects in its own namespace."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from typing import Any

from operator_bench.objects import build_bare_cluster, clear, create_all, create_namespace, make_job
from operator_bench.observer import get_phase, observing
from operator_bench.processes import CONTROL_PORT, Operator, Process
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi

FOREVER = 10_000_000
"""Steps of a training that does not end."""


@dataclass(frozen=True)
class Start:
    """What it took until all jobs or RayClusters of a number ran."""

    count: int
    seconds: float
    operator_cpu_s: float = 0.0
    kuberay_cpu_s: float = 0.0


@dataclass(frozen=True)
class Running:
    """An interval in which a number of jobs runs."""

    count: int
    cores: float
    """Cores that the operator used on average."""
    memory_mb: float
    requests: Counter[str]
    """Requests per job and minute, by method and resource."""
    seconds: float


def set_training(*, seconds_per_step: float, total_steps: int) -> None:
    """Set the training of all jobs."""
    body = json.dumps({"seconds_per_step": seconds_per_step, "total_steps": total_steps}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{CONTROL_PORT}/settings", data=body, method="PUT")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request, timeout=10).close()


async def start_jobs(api: KubernetesApi, operator: Operator, kuberay: Process, count: int, namespace: str) -> Start:
    """Create jobs at once and wait until all are Running. They remain."""
    await create_namespace(api, namespace)
    path = api_paths.jobs(namespace)
    async with observing(api, path, get_phase) as jobs:
        started, cpu, kuberay_cpu = time.time(), operator.cpu_s(), kuberay.cpu_s()
        await create_all(api, path, [make_job(namespace, f"job-{number}") for number in range(count)])
        await jobs.wait(lambda: jobs.count("Running") == count, f"{count} jobs are Running")
        last = max(times["Running"] for times in jobs.times.values())
        return Start(count, last - started, operator.cpu_s() - cpu, kuberay.cpu_s() - kuberay_cpu)


async def start_bare_clusters(
    api: KubernetesApi, kuberay: Process, template: Manifest, count: int, namespace: str
) -> Start:
    """Create RayClusters at once, wait until all are ready, and delete them."""
    await create_namespace(api, namespace)
    path = api_paths.ray_clusters(namespace)
    async with observing(api, path, lambda each: each.get("status", {}).get("state")) as clusters:
        started, cpu = time.time(), kuberay.cpu_s()
        manifests = [build_bare_cluster(template, namespace, f"job-{number}") for number in range(count)]
        await create_all(api, path, manifests)
        await clusters.wait(lambda: clusters.count("ready") == count, f"{count} RayClusters are ready")
        last = max(times["ready"] for times in clusters.times.values())
        result = Start(count, last - started, 0.0, kuberay.cpu_s() - cpu)
    await clear(api, namespace)
    return result


async def watch_running(api: KubernetesApi, operator: Operator, namespace: str, seconds: float) -> Running:
    """Measure the operator while the jobs of the namespace run."""
    count = len(await api.list(api_paths.jobs(namespace)))
    started, cpu, requests = time.monotonic(), operator.cpu_s(), operator.requests()
    await asyncio.sleep(seconds)
    elapsed, used = time.monotonic() - started, operator.cpu_s() - cpu
    made = operator.requests() - requests
    per_job = Counter({key: number / count * 60 / elapsed for key, number in made.items()})
    return Running(count, used / elapsed, operator.memory_mb(), per_job, elapsed)


def describe(requests: Counter[str]) -> dict[str, Any]:
    """Requests by method and resource, the most frequent first, without those that are rare."""
    return {key: round(number, 2) for key, number in requests.most_common() if number >= 0.005}
