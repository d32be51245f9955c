"""A limit on the number of requests at the same time, shared fairly by namespaces."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from rlt_core.kubernetes.fair_queue import OWN, FairQueue, Flow, Urgency

_flow: ContextVar[Flow] = ContextVar("flow", default=OWN)


@contextmanager
def requests_of(namespace: str | None) -> Iterator[None]:
    """The requests of this task, and of the tasks that it creates, belong to this namespace; None: to all of them."""
    before = _flow.set(Flow(namespace))
    try:
        yield
    finally:
        _flow.reset(before)


def set_urgency(urgency: Urgency) -> None:
    """The next requests of this task, and of the tasks that it creates, have this urgency."""
    _flow.set(replace(_flow.get(), urgency=urgency))


@dataclass
class FairSlots:
    """Slots for requests. Requests that wait get them by deficit round robin over namespaces."""

    total: int = 32
    """Maximum number of requests at the same time."""
    reserved: int = 4
    """Slots for requests that belong to no namespace. Half of them are also for stops."""
    of_a_namespace: int = 12
    """Maximum number of requests of one namespace. The API server may serve all of them before another namespace's."""

    _free: int = field(init=False)
    _held: Counter[str | None] = field(default_factory=Counter, init=False)
    _waiting: FairQueue[asyncio.Future[None]] = field(default_factory=FairQueue, init=False)

    def __post_init__(self) -> None:
        self._free = self.total

    @asynccontextmanager
    async def hold(self, cost: int = 1) -> AsyncIterator[None]:
        """Hold a slot for the flow of this task."""
        flow = _flow.get()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.push(flow, cost, turn)
        self._start()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release(flow)
            raise
        try:
            yield
        finally:
            self._release(flow)

    def _release(self, flow: Flow) -> None:
        self._free += 1
        self._held[flow.namespace] -= 1
        if not self._held[flow.namespace]:
            del self._held[flow.namespace]
        self._start()

    def _start(self) -> None:
        while self._free and (found := self._waiting.pop(self._may_start)):
            flow, turn = found
            if not turn.done():  # else its task was cancelled while it waited
                self._free -= 1
                self._held[flow.namespace] += 1
                turn.set_result(None)

    def _may_start(self, flow: Flow) -> bool:
        if flow.namespace is None:
            return True
        for_stops = self.reserved // 2 if flow.urgency == Urgency.STOP else 0
        limit = self.of_a_namespace + for_stops
        return self._free > self.reserved - for_stops and self._held[flow.namespace] < limit
