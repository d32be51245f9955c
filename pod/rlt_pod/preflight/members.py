"""The measuring processes of a Ray cluster, as Ray actors."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from rlt_pod.preflight.expected import Expected, dump_expected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

R = TypeVar("R")

PROCESS_MODULE = "rlt_pod.preflight.process"
"""Module of the class that measures."""
MAX_ERROR_CHARACTERS = 300
"""Maximum number of characters of an error in a message."""
POLL_INTERVAL_S = 0.5
"""Interval between reads of Ray's nodes. Ray has no event for a node that joins."""


@dataclass(frozen=True)
class NoAnswer:
    """The reason why a call has no result."""

    reason: str
    is_unresponsive: bool = True
    """Whether the process did not answer at all. False: the call raised an error in it."""


@dataclass(frozen=True)
class RayNode:
    """A pod that has joined Ray."""

    id: str
    pod: str
    """Its host name, which is the pod's name, or with hostNetwork the node's. Unique."""
    address: str
    cpus: int
    devices: int


@dataclass(frozen=True)
class Member:
    """A measuring process and its pod."""

    actor: Any
    pod: str
    is_leader: bool
    """Whether it is the first process of its pod."""
    devices: int
    """Accelerators of the process: 0, 1, or the engine's."""


def list_nodes() -> tuple[RayNode, list[RayNode]]:
    """Return the node of this process, and the worker nodes. A head with CPUs is a worker, too.

    On Kubernetes the head of a job has no CPUs in Ray (core/rlt_core/children/raycluster.py). Elsewhere the first
    worker is the head.
    """
    ray = import_module("ray")
    alive = [each for each in ray.nodes() if each["Alive"]]
    names = Counter(each["NodeManagerHostname"] for each in alive)
    own = ray.get_runtime_context().get_node_id()
    nodes = [
        RayNode(
            id=each["NodeID"],
            pod=each["NodeManagerHostname"]
            + (f"-{each['NodeID'][:6]}" if names[each["NodeManagerHostname"]] > 1 else ""),
            address=each["NodeManagerAddress"],
            cpus=int(each["Resources"].get("CPU", 0)),
            devices=int(each["Resources"].get("GPU", 0)),
        )
        for each in alive
    ]
    head = next(node for node in nodes if node.id == own)
    return head, sorted((node for node in nodes if node.id != own or node.cpus), key=lambda node: node.pod)


def wait_for_nodes(workers: int, timeout_s: float) -> tuple[RayNode, list[RayNode]]:
    """Wait until this number of workers has joined Ray, or until the timeout."""
    deadline = time.monotonic() + timeout_s
    head, nodes = list_nodes()
    while len(nodes) < workers and nodes != [head] and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
        head, nodes = list_nodes()
    return head, nodes


def start_members(
    nodes: Sequence[RayNode], expected: Expected, directory: str, process: str = PROCESS_MODULE
) -> list[Member]:
    """Start a process for each accelerator of the nodes. `directory` has the package rlt_core in every pod.

    `process`: the module of the class Process.
    """
    return [
        start_member(node, expected, directory, process, devices=min(1, node.devices), is_leader=index == 0)
        for node in nodes
        for index in range(max(1, node.devices))
    ]


def start_member(
    node: RayNode,
    expected: Expected,
    directory: str,
    process: str = PROCESS_MODULE,
    *,
    devices: int = 0,
    is_leader: bool = True,
) -> Member:
    """Start a process with this number of accelerators on a node."""
    ray = import_module("ray")
    strategies = import_module("ray.util.scheduling_strategies")
    actor = ray.remote(_build_actor_class())
    options = {
        "num_cpus": 0,
        "num_gpus": devices,
        "scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
    }
    started = actor.options(**options).remote(directory, process, dump_expected(expected), node.pod, node.address)
    return Member(started, node.pod, is_leader, devices)


def end_members(members: Sequence[Member]) -> None:
    """End the processes, so that Ray can give their accelerators to others."""
    for member in members:
        import_module("ray").kill(member.actor)


def call(members: Sequence[Member], timeout_s: float, method: Callable[..., R], *arguments: Any) -> list[R | NoAnswer]:
    """Call a method of Process in each member. Return the results or NoAnswer, in order."""
    return call_each(members, timeout_s, method, [arguments] * len(members))


def call_each(
    members: Sequence[Member], timeout_s: float, method: Callable[..., R], arguments: Sequence[tuple[Any, ...]]
) -> list[R | NoAnswer]:
    """Call a method of Process in each member with its own arguments. Return the results or NoAnswer, in order."""
    if not members:
        return []
    ray = import_module("ray")
    calls = [member.actor.call.remote(method.__name__, *arguments[index]) for index, member in enumerate(members)]
    done = set(ray.wait(calls, num_returns=len(calls), timeout=timeout_s)[0])
    return [_get_result(call) if call in done else NoAnswer(f"no answer within {timeout_s:.0f} s") for call in calls]


def _build_actor_class() -> type[Any]:
    """Build a class without a name that another process can import, so that Ray pickles it by value.

    Only its instances have `directory` in sys.path.
    """

    class Actor:
        def __init__(self, directory: str, module: str, expected: str, pod: str, address: str) -> None:
            import sys
            from importlib import import_module

            sys.path.insert(0, directory)
            parsed = import_module("rlt_pod.preflight.expected").parse_expected(expected)
            self._process = import_module(module).Process(parsed, pod, address)

        def call(self, method: str, *arguments: Any) -> Any:
            return getattr(self._process, method)(*arguments)

    return Actor


def _get_result(reference: Any) -> Any:
    try:
        return import_module("ray").get(reference)
    except Exception as error:  # a check reports any error of a process
        cause = getattr(error, "cause", None) or error
        first_line = str(cause).strip().partition("\n")[0]
        is_dead = isinstance(error, import_module("ray.exceptions").RayActorError)
        return NoAnswer(f"{type(cause).__name__}: {first_line[:MAX_ERROR_CHARACTERS]}", is_unresponsive=is_dead)
