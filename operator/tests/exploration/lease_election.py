"""Every order in which the requests of competing processes arrive, with different numbers of shards.

The elections are real. Their requests wait until the search lets the API server answer, and their clock stands still
until the search moves it. A task cannot be copied, so that the search repeats the path to each state from the start.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from exploration.invariants import Violation

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.shards import Shard
from rlt_operator.leader_election import LEASE_DURATION_S, LeaderElection, LeaseLocation
from rlt_operator.leadership import Leadership

TICK_S = LEASE_DURATION_S / 2
"""A leader still leads after one tick without a renewal, and another process takes the Lease after two."""
SHARDS = (Shard(0, 1), Shard(0, 2), Shard(0, 2), Shard(1, 2), Shard(2, 3))
"""A process without shards, two replicas of a shard, another shard, and a shard of another number of shards."""
LEADS = ("step 0",) * 5
"""The path on which the first process, of a shard, gets both Leases: it starts, reads two and writes two."""
PASSES = 4
"""Passes of the event loop until all tasks wait again."""


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time the search moves."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@dataclass
class Server:
    """The Leases of an API server."""

    leases: dict[str, Manifest] = field(default_factory=dict)
    versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def get(self, path: str) -> Manifest | None:
        return self.leases.get(path)

    def write(self, path: str, manifest: Manifest) -> None:
        """Store the Lease. Raises ApiError with status 409 if it has changed since it was read."""
        if manifest["metadata"].get("resourceVersion") != self.version(path):
            raise ApiError(409, "conflict")
        metadata = {**manifest["metadata"], "resourceVersion": next(self.versions)}
        self.leases[path] = {**manifest, "metadata": metadata}

    def version(self, path: str) -> int | None:
        found = self.leases.get(path)
        return found["metadata"]["resourceVersion"] if found else None


@dataclass
class Request:
    """A request that the API server has not answered."""

    path: str
    written: Manifest | None
    """None: a read."""
    answer: asyncio.Future[Manifest | None]


@dataclass
class Client:
    """The connection of a process: its requests wait."""

    server: Server
    waiting: Request | None = None
    late: list[Request] = field(default_factory=list)
    """Writes whose process no longer waits for the answer."""

    async def get(self, path: str) -> Manifest | None:
        return await self._send(path, None)

    async def create(self, path: str, manifest: Manifest) -> None:
        await self._send(f"{path}/{manifest['metadata']['name']}", manifest)

    async def replace(self, path: str, manifest: Manifest) -> None:
        await self._send(path, manifest)

    async def _send(self, path: str, written: Manifest | None) -> Manifest | None:
        request = Request(path, written, asyncio.get_running_loop().create_future())
        self.waiting = request
        try:
            return await request.answer
        except asyncio.CancelledError:
            if written:
                self.late.append(request)
            raise
        finally:
            self.waiting = None

    def serve(self, request: Request) -> None:
        """Let the API server answer."""
        try:
            if request.written:
                self.server.write(request.path, request.written)
            answer = self.server.get(request.path)
        except ApiError as error:
            if not request.answer.done():
                request.answer.set_exception(error)
        else:
            if not request.answer.done():
                request.answer.set_result(answer)


class Process:
    """A process of the operator that tries to lead."""

    def __init__(self, server: Server, number: int) -> None:
        self.shard = SHARDS[number]
        self.client = Client(server)
        self.leadership = Leadership()
        location = LeaseLocation("system", "operator")
        api = cast(KubernetesApi, self.client)
        self.election = LeaderElection(api, location, self.leadership, identity=f"pod_{number}", shard=self.shard)
        self.attempt: asyncio.Task[bool] | None = None

    def step(self) -> None:
        """Start an attempt, or let the API server answer its request."""
        if self.client.waiting:
            self.client.serve(self.client.waiting)
        else:
            self.attempt = asyncio.create_task(self.election._attempt())

    def describe(self, now: float) -> object:
        """The same for processes that behave in the same way."""
        leases = [self.election._own, *filter(None, [self.election._shared])]
        versions = self.client.server.leases
        seen = [
            each.seen
            and (
                each.seen.spec == versions.get(each._path, {}).get("spec"),
                each.seen.spec["holderIdentity"],
                min(now - each.seen.at, LEASE_DURATION_S),
            )
            for each in leases
        ]
        requests = [*filter(None, [self.client.waiting]), *self.client.late]
        sent = [(each.path, each.written is not None, self._is_accepted(each)) for each in requests]
        found = [each._found and each._found["metadata"]["resourceVersion"] for each in leases]
        current = [self.client.server.version(each._path) for each in leases]
        fresh = [one == other for one, other in zip(found, current, strict=True)]
        return seen, sent, self.client.waiting is not None, fresh, max(0.0, self.leadership.until - now)

    def _is_accepted(self, request: Request) -> bool:
        version = request.written and request.written["metadata"].get("resourceVersion")
        return version == self.client.server.version(request.path)


@dataclass
class Election:
    """Some processes and the API server."""

    numbers: tuple[int, ...]
    """Of SHARDS."""
    server: Server = field(default_factory=Server)
    processes: list[Process] = field(init=False)

    def __post_init__(self) -> None:
        self.processes = [Process(self.server, number) for number in self.numbers]

    async def act(self, action: str) -> None:
        """Carry out an action, and wait until it has its effect. Raises Violation."""
        verb, _, number = action.partition(" ")
        if verb == "tick":
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Clock)
            loop.now += TICK_S
        else:
            process = self.processes[int(number)]
            if verb == "step":
                process.step()
            else:
                process.client.serve(process.client.late.pop(0))
        for _ in range(PASSES):
            await asyncio.sleep(0)
        self._check()

    def list_actions(self) -> Iterator[str]:
        """The actions that are possible."""
        for number, process in enumerate(self.processes):
            yield f"step {number}"
            if process.client.late:
                yield f"late {number}"
        yield "tick"

    def describe(self) -> str:
        """The same for states from which the same can follow."""
        now = asyncio.get_running_loop().time()
        holders = sorted((path, each["spec"]["holderIdentity"]) for path, each in self.server.leases.items())
        return repr((holders, [each.describe(now) for each in self.processes]))

    async def close(self) -> None:
        """Cancel the attempts."""
        tasks = [each.attempt for each in self.processes if each.attempt]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check(self) -> None:
        leading = [each.shard for each in self.processes if each.leadership.valid]
        for one, other in itertools.combinations(leading, 2):
            if one == other or one.total != other.total:
                raise Violation(f"one_process_acts_on_a_namespace: {one} and {other} lead")


@dataclass(frozen=True)
class ElectionBounds:
    """How far the search goes."""

    depth: int
    """Number of actions on a path, after its start."""
    processes: tuple[tuple[int, ...], ...] = ((1, 0, 2), (1, 3, 4))
    """Sets of processes that compete, by their positions in SHARDS."""

    def explore(self) -> int:
        """Explore all paths. Returns the number of states. Raises Violation with the path to it."""
        with asyncio.Runner(loop_factory=Clock) as runner:
            return sum(runner.run(self._explore(numbers)) for numbers in self.processes)

    async def _explore(self, numbers: tuple[int, ...]) -> int:
        found: set[str] = set()
        led: set[Shard] = set()
        paths: deque[tuple[str, ...]] = deque([(), LEADS])
        while paths:
            path = paths.popleft()
            election = Election(numbers)
            try:
                for action in path:
                    await election.act(action)
                state = election.describe()
                led |= {each.shard for each in election.processes if each.leadership.valid}
                if state not in found:
                    found.add(state)
                    if len(path) < self.depth + (len(LEADS) if path[: len(LEADS)] == LEADS else 0):
                        paths += ((*path, action) for action in election.list_actions())
            except Violation as violation:
                raise Violation("\n- ".join((str(violation), *path))) from None
            finally:
                await election.close()
        missing = {SHARDS[number] for number in numbers} - led
        if missing:
            raise Violation(f"every_process_can_lead: {missing} never led")
        return len(found)
