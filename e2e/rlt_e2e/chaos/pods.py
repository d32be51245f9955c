"""The pods of a job on the embedded cluster: their nodes, processes and containers, as the faults need them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_e2e.cluster import Cluster, cgroups
from rlt_e2e.cluster.layout import Layout

CALL_TIMEOUT_S = 60.0
"""Timeout for an actor's call of a method that each step calls."""


@dataclass(frozen=True)
class Pod:
    """A running pod."""

    name: str
    namespace: str
    uid: str
    node: str
    address: str
    container: str
    """ID of its container in containerd."""
    is_head: bool


@dataclass(frozen=True)
class Target:
    """The job into whose cluster a fault is injected."""

    cluster: Cluster
    namespace: str
    job: str
    volume: Path
    """The folder of its volume, as this machine reads it."""

    @property
    def layout(self) -> Layout:
        """The layout of the embedded cluster."""
        assert self.cluster.layout, "the faults need the processes and the network of the embedded cluster"
        return self.cluster.layout

    def list_pods(self) -> list[Pod]:
        """List the job's pods by name."""
        return list_pods(self.cluster, self.namespace, f"ray.io/cluster={self.job}")

    def head(self) -> Pod:
        """Return the head pod."""
        return next(pod for pod in self.list_pods() if pod.is_head)

    def workers(self) -> list[Pod]:
        """Return the worker pods by name."""
        return [pod for pod in self.list_pods() if not pod.is_head]


def list_pods(cluster: Cluster, namespace: str, selector: str) -> list[Pod]:
    """List running pods by name."""
    arguments = ("-n", namespace, "get", "pods", "-l", selector, "--field-selector=status.phase=Running", "-o", "json")
    found = json.loads(cluster.kubectl(*arguments))["items"]
    return sorted((_parse(pod) for pod in found), key=lambda pod: pod.name)


def list_pids(layout: Layout, pod: Pod, title: str = "") -> list[int]:
    """List the processes of a pod whose command line contains `title`."""
    found = []
    for pid in sorted(cgroups.list_pids(layout.node(pod.node).cgroup)):
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        if pod.uid in groups and title in command:
            found.append(pid)
    return found


def kill_process(layout: Layout, pod: Pod, title: str) -> None:
    """SIGKILL the processes of a pod whose command line contains `title`. Raises ValueError if none has it."""
    pids = list_pids(layout, pod, title)
    if not pids:
        raise ValueError(f"pod {pod.name} has no process {title!r}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@contextmanager
def stop_in_call(layout: Layout, pod: Pod, actor: str, method: str) -> Iterator[None]:
    """Stop the process of an actor in a pod while it runs a method, until the end of the block.

    Ray writes the method into the command line of the process. Raises TimeoutError if the actor does not run it.
    """
    (pid,) = list_pids(layout, pod, f"ray::{actor}")
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        while f"ray::{actor}.{method}" not in _read(pid, "cmdline"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{actor} in pod {pod.name} did not run {method} within {CALL_TIMEOUT_S:g} s")
            time.sleep(0.001)
        os.kill(pid, signal.SIGSTOP)
        try:
            while " T " not in _read(pid, "stat"):
                time.sleep(0.001)
            if f"ray::{actor}.{method}" in _read(pid, "cmdline"):
                yield
                return
        finally:
            os.kill(pid, signal.SIGCONT)


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(errors="replace")


def _parse(pod: dict[str, Any]) -> Pod:
    metadata = pod["metadata"]
    status = pod["status"]
    return Pod(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        node=pod["spec"]["nodeName"],
        address=status["podIP"],
        container=status["containerStatuses"][0]["containerID"].removeprefix("containerd://"),
        is_head=metadata["labels"].get("ray.io/node-type") == "head",
    )
