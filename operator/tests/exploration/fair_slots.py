"""Every order of requests that share the slots of the API server: they are sent, end and are cancelled.

The slots, their queue and the tasks that wait are real. A task cannot be copied, so that the search repeats the path to
each state from the start.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from exploration.invariants import Violation

from rlt_core.kubernetes.fair_queue import OWN, QUANTUM, Flow, Urgency
from rlt_core.kubernetes.fair_slots import FairSlots, requests_of, set_urgency

READ = 1
WRITE = 4
KINDS = (
    (Flow("a"), WRITE),
    (Flow("a", Urgency.STOP), WRITE),
    (Flow("b"), READ),
    (OWN, READ),
)
"""Flow and cost of a request, by kind."""
START = ("send 0",) * 4
"""The path before the search: one namespace has more requests than it may send at the same time."""
PASSES = 3
"""Passes of the event loop until all tasks wait again."""


@dataclass
class Request:
    """A request that waits for a slot or holds one."""

    flow: Flow
    cost: int
    task: asyncio.Task[None] = field(init=False)
    end: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Client:
    """Requests and their slots."""

    slots: FairSlots = field(default_factory=lambda: FairSlots(total=4, reserved=2, of_a_namespace=2))
    waiting: list[Request] = field(default_factory=list)
    holding: list[Request] = field(default_factory=list)
    started: list[Request] = field(default_factory=list)
    """Those that got a slot since the latest action."""
    ahead: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What the second namespace has spent since the first one could have had a slot."""

    async def act(self, action: str) -> None:
        """Carry out an action, and wait until it has its effect. Raises Violation."""
        self.started.clear()
        for step in action.split(", "):
            verb, number = step.split()
            if verb == "send":
                self._send(*KINDS[int(number)])
            elif verb == "end":
                ended = self.holding.pop(int(number))
                ended.end.set()
                await asyncio.sleep(0)  # its slot is free, and the next request has not noticed it
            else:
                cancelled = self.waiting.pop(int(number))
                cancelled.task.cancel()
        for _ in range(PASSES):
            await asyncio.sleep(0)
        self._check()

    async def end_all(self) -> None:
        """End every request. Raises Violation if one does not get a slot."""
        while self.holding:
            await self.act("end 0")
        if self.waiting:
            raise Violation(f"every_request_gets_a_slot: {[each.flow for each in self.waiting]} wait for ever")

    async def close(self) -> None:
        """Cancel the tasks of all requests."""
        tasks = [each.task for each in (*self.waiting, *self.holding)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def list_actions(self, *, sends: bool) -> Iterator[str]:
        """The actions that are possible. Of requests of the same kind, the first one."""
        if sends:
            yield from (f"send {number}" for number in range(len(KINDS)))
        ends = [f"end {number}" for number in _list_distinct(self.holding)]
        cancels = [f"cancel {number}" for number in _list_distinct(self.waiting)]
        yield from (*ends, *cancels, *(f"{end}, {cancel}" for end in ends for cancel in cancels))

    def describe(self) -> object:
        """The same for clients that behave in the same way."""
        queue = self.slots._waiting
        turns = [(name, waiting.credit) for name, waiting in queue._namespaces.items()]
        flows = ([each.flow for each in self.waiting], Counter(each.flow for each in self.holding))
        return repr((turns, flows, sorted(self.ahead.items())))

    def _send(self, flow: Flow, cost: int) -> None:
        request = Request(flow, cost)
        with requests_of(flow.namespace):
            request.task = asyncio.create_task(self._hold(request))
        self.waiting.append(request)

    async def _hold(self, request: Request) -> None:
        set_urgency(request.flow.urgency)
        async with self.slots.hold(request.cost):
            if request in self.waiting:  # else it is cancelled in this moment
                self.started.append(request)
            await request.end.wait()

    def _check(self) -> None:
        for request in self.started:
            if not self._permits(request.flow):
                raise Violation(f"slots_are_reserved: {request.flow} has started beside {self._list_flows()}")
            more_urgent = [each.flow for each in self.waiting if each.flow.namespace == request.flow.namespace]
            if request.flow.urgency > min(each.urgency for each in more_urgent):
                raise Violation(f"stops_go_first: {request.flow} has started before {more_urgent}")
            self._count(request)
            self.waiting.remove(request)
            self.holding.append(request)
        wait = {each.flow.namespace for each in self.waiting}
        self.ahead = Counter({pair: cost for pair, cost in self.ahead.items() if pair[0] in wait})
        if self.slots._free != self.slots.total - len(self.holding):
            raise Violation(f"no_slot_is_lost: {self.slots._free} are free, and {self._list_flows()} hold one")
        if idle := [each.flow for each in self.waiting if self._permits(each.flow)]:
            raise Violation(f"no_slot_is_idle: {idle} could have one")

    def _permits(self, flow: Flow) -> bool:
        """Whether there is a slot for one more request."""
        slots = self.slots
        held = Counter(each.flow.namespace for each in self.holding)
        if flow.namespace is None:
            return len(self.holding) < slots.total
        for_stops = slots.reserved // 2 if flow.urgency == Urgency.STOP else 0
        of_a_namespace = held[flow.namespace] < slots.of_a_namespace + for_stops
        return of_a_namespace and len(self.holding) < slots.total - slots.reserved + for_stops

    def _count(self, started: Request) -> None:
        """Count what a namespace got while another one could have had the slot. Raises Violation."""
        namespace = started.flow.namespace
        if namespace is None:
            return
        others = {each.flow.namespace for each in self.waiting if self._permits(each.flow)} - {namespace, None}
        for other in filter(None, others):
            self.ahead[other, namespace] += started.cost
            if self.ahead[other, namespace] >= 2 * QUANTUM:
                raise Violation(f"namespaces_take_turns: {other} waits, and {namespace} has got more than one round")
        self.ahead = Counter({pair: cost for pair, cost in self.ahead.items() if pair[0] != namespace})

    def _list_flows(self) -> list[Flow]:
        return [each.flow for each in self.holding]


def _list_distinct(requests: Sequence[Request]) -> list[int]:
    """The position of the first request of each kind."""
    found: dict[Flow, int] = {}
    for position, request in enumerate(requests):
        found.setdefault(request.flow, position)
    return list(found.values())


@dataclass(frozen=True)
class RequestBounds:
    """How far the search goes."""

    depth: int
    """Number of actions on a path, after START."""
    requests: int = 7
    """Maximum number of requests on a path."""

    def explore(self) -> int:
        """Explore all paths. Returns the number of states. Raises Violation with the path to it."""
        return asyncio.run(self._explore())

    async def _explore(self) -> int:
        found: set[object] = set()
        paths: deque[tuple[str, ...]] = deque([START])
        while paths:
            path = paths.popleft()
            client = Client()
            try:
                for action in path:
                    await client.act(action)
                state = client.describe()
                sent = sum(each.startswith("send") for each in path)
                actions = list(client.list_actions(sends=sent < self.requests))
                if state not in found:
                    found.add(state)
                    if len(path) < len(START) + self.depth:
                        paths += ((*path, action) for action in actions)
                    await client.end_all()
            except Violation as violation:
                raise Violation("\n- ".join((str(violation), *path))) from None
            finally:
                await client.close()
        return len(found)
