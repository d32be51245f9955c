"""What is measured. Each function leaves the control plane as it was, except for objects in its own namespace."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from operator_bench.objects import build_bare_cluster, clear, create_all, create_namespace, make_job
from operator_bench.observer import get_phase, observing
from operator_bench.processes import CONTROL_PORT, Operator, Process, fetch
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_core.names import JOB_LABEL

WARM_UP = 3
"""Jobs of each kind that are created before the measured ones."""
PAUSE_S = 0.3
"""Pause after each job, in which its pods are deleted."""
STEP_S = 20.0
"""Duration of the only step in a job that runs to its end: longer than the start of all jobs takes."""
STATUS_WRITE = "PATCH rltrainingjobs/status"
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
    """Requests of all jobs, by method and resource."""
    seconds: float


def set_training(*, seconds_per_step: float, total_steps: int, paused: bool = False) -> None:
    """Set the training of all jobs. A paused one stands still."""
    settings = {"seconds_per_step": seconds_per_step, "total_steps": total_steps}
    body = json.dumps({**settings, "paused_at": time.time() if paused else None}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{CONTROL_PORT}/settings", data=body, method="PUT")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request, timeout=10).close()


@dataclass(frozen=True)
class Kind:
    """A kind of job and the object that its operator creates for it."""

    name: str
    path: str
    """Path of the jobs."""
    child_path: str
    """Path of the objects that are created for them. They have names that begin with the job's."""
    make: Callable[[str], Manifest]
    """Returns a job with this name."""


async def measure_creation(api: KubernetesApi, kinds: Sequence[Kind], samples: int) -> dict[str, list[float]]:
    """Seconds from the request that creates a job to the watch event of its child, one job at a time, in turns.

    Deletes each job afterwards.
    """
    seconds: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    async with AsyncExitStack() as stack:
        children = {}
        for path in {kind.child_path for kind in kinds}:
            children[path] = await stack.enter_async_context(observing(api, path, lambda each: True))
        for number in range(samples + WARM_UP):
            for kind in kinds:
                name = f"{kind.name}-{number}"
                child = children[kind.child_path]
                started = time.time()
                await api.create(kind.path, kind.make(name))
                await child.wait(lambda: any(each.startswith(name) for each in child.times), f"a child of {name}")  # noqa: B023
                first = next(times[True] for each, times in child.times.items() if each.startswith(name))
                if number >= WARM_UP:
                    seconds[kind.name].append(first - started)
                child.times.clear()
                await api.send("DELETE", f"{kind.path}/{name}", query={"propagationPolicy": "Background"})
                await asyncio.sleep(PAUSE_S)
    return seconds


async def start_jobs(api: KubernetesApi, operator: Operator, kuberay: Process, count: int, namespace: str) -> Start:
    """Create jobs at once and wait until all are Running. They remain."""
    await create_namespace(api, namespace)
    path = api_paths.jobs(namespace)
    async with observing(api, path, get_phase) as jobs:
        started = time.time()
        cpu = operator.cpu_s()
        kuberay_cpu = kuberay.cpu_s()
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
        started = time.time()
        cpu = kuberay.cpu_s()
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
    started = time.monotonic()
    cpu = operator.cpu_s()
    requests = operator.requests()
    await asyncio.sleep(seconds)
    elapsed = time.monotonic() - started
    used = operator.cpu_s() - cpu
    made = operator.requests() - requests
    return Running(count, used / elapsed, operator.memory_mb(), made, elapsed)


def describe(requests: Counter[str]) -> dict[str, Any]:
    """Requests by method and resource, the most frequent first, without those that are rare."""
    return {key: round(number, 2) for key, number in requests.most_common() if number >= 0.005}


@dataclass(frozen=True)
class Succeeded:
    """What the operator requested for a number of jobs until they had succeeded."""

    count: int
    requests: Counter[str]
    """Requests per job, by method and resource."""


async def run_to_success(api: KubernetesApi, operator: Operator, count: int, namespace: str) -> Succeeded:
    """Run jobs of one step to their end, and count the requests until all are Succeeded."""
    set_training(seconds_per_step=STEP_S, total_steps=1)
    await create_namespace(api, namespace)
    path = api_paths.jobs(namespace)
    async with observing(api, path, get_phase) as jobs:
        before = operator.requests()
        await create_all(api, path, [make_job(namespace, f"job-{number}") for number in range(count)])
        await jobs.wait(lambda: jobs.count("Succeeded") == count, f"{count} jobs have succeeded")
        made = operator.requests() - before
    del made["DELETE rayclusters"]  # afterwards, as the status writes that report it
    made[STATUS_WRITE] = sum(jobs.changes_until("Succeeded")) - count  # without the creations
    return Succeeded(count, Counter({key: number / count for key, number in made.items()}))


async def measure_freshness(api: KubernetesApi, namespace: str, seconds: float) -> list[float]:
    """Seconds from the end of each step to the status that has it, for the steps of `seconds`."""
    heads = await _find_heads(api, namespace)
    async with observing(api, api_paths.jobs(namespace), _get_step) as jobs:
        begin = time.time()
        await asyncio.sleep(seconds)
        settings = json.loads(fetch(f"http://127.0.0.1:{CONTROL_PORT}/settings"))
        ages = []
        for name, started in heads.items():
            for step, seen in jobs.times[name].items():
                finished = started + (step or 0) * settings["seconds_per_step"]
                if finished > begin:
                    ages.append(seen - finished)
    return ages


async def _find_heads(api: KubernetesApi, namespace: str) -> dict[str, float]:
    """Job -> when its training started (time.time)."""
    started = json.loads(fetch(f"http://127.0.0.1:{CONTROL_PORT}/heads"))
    pods = await api.list(api_paths.pods(namespace), labelSelector="ray.io/node-type=head")
    return {pod["metadata"]["labels"][JOB_LABEL]: started[pod["status"]["podIP"]] for pod in pods}


def _get_step(manifest: Manifest) -> int | None:
    step: int | None = manifest.get("status", {}).get("progress", {}).get("step")
    return step


@dataclass(frozen=True)
class Restart:
    """A restart of the operator while jobs run."""

    count: int
    seconds: float
    """From the start of the process until it has reconciled every job with an answer of its head."""
    job_writes: int
    """Changes of jobs from then on until a minute later. No training makes a step in that time."""
    requests: Counter[str]
    memory_mb: float


async def measure_restart(api: KubernetesApi, operator: Operator, namespace: str, seconds: float) -> Restart:
    """Kill the operator and start it again."""
    path = api_paths.jobs(namespace)
    count = len(await api.list(path))
    async with observing(api, path, _get_version) as jobs:
        await jobs.wait(lambda: len(jobs.states) == count, "the jobs are listed")
        operator.stop(signal.SIGKILL)
        before = sum(jobs.changes.values())
        started = time.monotonic()
        operator.start()
        while operator.metric_or_zero('rlt_operator_jobs{phase="Running",reason="Started"}') < count:
            operator.check()
            await asyncio.sleep(0.1)
        known = time.monotonic() - started
        await asyncio.sleep(seconds)
        return Restart(count, known, sum(jobs.changes.values()) - before, operator.requests(), operator.memory_mb())


def _get_version(manifest: Manifest) -> str:
    version: str = manifest["metadata"]["resourceVersion"]
    return version
