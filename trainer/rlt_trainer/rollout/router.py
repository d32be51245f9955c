"""Sends requests one by one to the engines: to one that has their prefix in its cache, else to the least loaded one."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

import numpy as np

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import EngineError, Request, Sampling

RESERVE = 1.25
"""Requests that an engine gets, relative to those that it runs at the same time. The others replace requests that end.
Requests beyond them wait in the router, for the first engine that has room."""
BLOCK = 16
"""Tokens in a block of the prefix cache (vLLM's default block_size)."""
PREFIX_SLACK = 8
"""How many more requests than the least loaded engine another one may have, to get a request whose prefix it has."""
MAX_PREFIXES = 2**16
"""Number of blocks whose engines are stored. The oldest are forgotten."""


class Engine(Protocol):
    """The part of an engine's process that takes requests: RolloutWorker."""

    async def submit(self, requests: Sequence[Request]) -> None: ...
    async def ended(self) -> list[tuple[int, Response | EngineError]]: ...
    async def abort(self, numbers: Sequence[int]) -> None: ...


@dataclass(order=True)
class _Waiting:
    is_background: bool
    number: int
    request: Request = field(compare=False)


@dataclass(eq=False)
class _Member:
    """An engine and the requests that it has."""

    engine: Engine
    limit: int
    requests: dict[int, _Waiting] = field(default_factory=dict)


class Router:
    """A Sampler over all engines. All calls are made by one event loop.

    Requests that arrive in one pass of the event loop are assigned in order, and sent to each engine together. So the
    engines of a batch that need not wait are the same in every run.
    """

    def __init__(self, on_loss: Callable[[Engine, Exception], None]) -> None:
        """`on_loss` is called with an engine whose process ended, after it is removed."""
        self._on_loss = on_loss
        self._members: list[_Member] = []
        self._waiting: list[_Waiting] = []
        self._results: dict[int, asyncio.Future[Response]] = {}
        self._numbers = count()
        self._prefixes: dict[int, _Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False

    def add(self, engine: Engine, *, max_requests: int) -> None:
        """Add an engine that runs `max_requests` requests at the same time."""
        member = _Member(engine, int(RESERVE * max_requests))
        self._members.append(member)
        self._keep(self._collect(member))
        self._schedule()

    async def sample(
        self,
        prompt: Sequence[int],
        *,
        seed: int,
        sampling: Sampling,
        max_tokens: int | None = None,
        images: tuple[bytes, ...] = (),
        is_background: bool = True,
    ) -> Response:
        """As in Sampler, to a prompt with `images`. Requests that are not in the background go first.

        A cancelled request is aborted.
        """
        limit = sampling.max_tokens if max_tokens is None else max_tokens
        request = Request(next(self._numbers), prompt, seed, sampling, limit, images)
        result: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._results[request.number] = result
        heapq.heappush(self._waiting, _Waiting(is_background, request.number, request))
        self._schedule()
        try:
            return await result
        except asyncio.CancelledError:
            await self._abort(request.number)
            raise
        finally:
            del self._results[request.number]

    def forget_prefixes(self) -> None:
        """Forget which engines have which prefixes, after they dropped their caches."""
        self._prefixes.clear()

    def load(self) -> list[int]:
        """Return the number of requests that each engine has."""
        return [len(member.requests) for member in self._members]

    def count_requests(self) -> dict[str, int]:
        """Return the number of requests by state: running in an engine, or waiting for one. Any thread can call it."""
        return {"running": sum(self.load()), "waiting": len(self._waiting)}

    async def close(self) -> None:
        """Stop collecting responses. Engines get no further calls."""
        self._members.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        for number in list(self._results):
            self._finish(number, error)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._assign)

    def _assign(self) -> None:
        self._is_scheduled = False
        assigned: dict[_Member, list[Request]] = {}
        while self._waiting:
            first = self._waiting[0]
            if first.number in self._results:  # else cancelled
                member = self._choose(first.request)
                if member is None:
                    break
                member.requests[first.number] = first
                assigned.setdefault(member, []).append(first.request)
            heapq.heappop(self._waiting)
        for member, requests in assigned.items():
            self._keep(self._submit(member, requests))

    def _choose(self, request: Request) -> _Member | None:
        """Choose the engine of a request. None: no engine has room."""
        least = min(self._members, key=lambda member: len(member.requests), default=None)
        if least is None or len(least.requests) >= least.limit:
            return None
        blocks = list(_hash_blocks(request.prompt, request.images))
        known = next((self._prefixes[block] for block in reversed(blocks) if block in self._prefixes), least)
        has_room = len(known.requests) < min(known.limit, len(least.requests) + PREFIX_SLACK)
        chosen = known if has_room else least
        for block in blocks:
            self._prefixes[block] = chosen
        while len(self._prefixes) > MAX_PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]
        return chosen

    async def _collect(self, member: _Member) -> None:
        try:
            while True:
                for number, result in await member.engine.ended():
                    del member.requests[number]
                    self._finish(number, result)
                self._schedule()
        except Exception as error:
            self._lose(member, error)

    async def _submit(self, member: _Member, requests: Sequence[Request]) -> None:
        try:
            await member.engine.submit(requests)
        except Exception as error:
            self._lose(member, error)

    def _lose(self, member: _Member, error: Exception) -> None:
        """Remove an engine whose process ended. Its requests go to others, in the order in which they arrived."""
        if member not in self._members:
            return
        self._members.remove(member)
        self._prefixes.clear()
        for waiting in member.requests.values():
            heapq.heappush(self._waiting, waiting)
        self._schedule()
        self._on_loss(member.engine, error)

    def _finish(self, number: int, result: Response | Exception) -> None:
        future = self._results.get(number)
        if future is None or future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    async def _abort(self, number: int) -> None:
        for member in self._members:
            if number in member.requests:
                await member.engine.abort([number])

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task. The event loop itself holds only a weak reference to it."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True)
class Foreground:
    """A Sampler whose requests go before those in the background: for validation beside generation."""

    router: Router

    async def sample(
        self,
        prompt: Sequence[int],
        *,
        seed: int,
        sampling: Sampling,
        max_tokens: int | None = None,
        images: tuple[bytes, ...] = (),
    ) -> Response:
        """As in Sampler."""
        response = await self.router.sample(
            prompt, seed=seed, sampling=sampling, max_tokens=max_tokens, images=images, is_background=False
        )
        return replace(response, routes=None)  # no update replays them


def _hash_blocks(prompt: Sequence[int], images: tuple[bytes, ...]) -> Iterator[int]:
    """Yield a key for each block of the prompt, which depends on the images and on all tokens up to its end."""
    tokens = np.asarray(prompt, dtype=np.int32)
    key = hash(images)
    for start in range(0, len(tokens), BLOCK):
        key = hash((key, tokens[start : start + BLOCK].tobytes()))
        yield key
