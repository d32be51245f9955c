"""The order of requests that wait: deficit round robin over namespaces. No I/O.

Shreedhar and Varghese, Efficient Fair Queuing using Deficit Round Robin, SIGCOMM 1995.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Urgency(IntEnum):
    """The order of requests of one namespace."""

    STOP = 0
    """Stops, suspends or ends a job."""
    NORMAL = 1
    PROGRESS = 2
    """Reports the progress of a job that runs."""


@dataclass(frozen=True)
class Flow:
    """Whose request it is."""

    namespace: str | None = None
    """The namespace of the job; None for what the operator reads for all of them."""
    urgency: Urgency = Urgency.NORMAL


OWN = Flow()
"""Requests for no particular job. They are few, and go first."""

QUANTUM = 4
"""What a namespace may spend in one round, and the cost of the most expensive request."""


@dataclass
class _Waiting(Generic[T]):
    """The items of one namespace, by urgency."""

    credit: int = QUANTUM
    items: dict[Urgency, deque[tuple[int, T]]] = field(default_factory=lambda: {each: deque() for each in Urgency})

    def find_next(self) -> Urgency | None:
        return next((urgency for urgency, items in self.items.items() if items), None)


class FairQueue(Generic[T]):
    """Items that wait. Each namespace spends the same in each round, however many items of it wait."""

    def __init__(self) -> None:
        self._own: deque[T] = deque()
        self._namespaces: dict[str, _Waiting[T]] = {}
        """In the order of their turns."""

    def push(self, flow: Flow, cost: int, item: T) -> None:
        """Add an item of `cost` 1 to QUANTUM."""
        if flow.namespace is None:
            self._own.append(item)
        else:
            self._namespaces.setdefault(flow.namespace, _Waiting()).items[flow.urgency].append((cost, item))

    def pop(self, may_start: Callable[[Flow], bool]) -> tuple[Flow, T] | None:
        """Remove the next item among those that may start; None if there is none."""
        if self._own and may_start(OWN):
            return OWN, self._own.popleft()
        skipped = 0
        while skipped < len(self._namespaces):
            namespace, waiting = next(iter(self._namespaces.items()))
            urgency = waiting.find_next()
            if urgency is None:
                del self._namespaces[namespace]
                continue
            flow = Flow(namespace, urgency)
            if not may_start(flow):
                skipped += 1
                self._move_to_end(namespace)
                continue
            cost, item = waiting.items[urgency][0]
            if cost > waiting.credit:
                waiting.credit += QUANTUM
                self._move_to_end(namespace)
                continue
            waiting.items[urgency].popleft()
            waiting.credit -= cost
            if waiting.find_next() is None:
                del self._namespaces[namespace]
            return flow, item
        return None

    def _move_to_end(self, namespace: str) -> None:
        self._namespaces[namespace] = self._namespaces.pop(namespace)
