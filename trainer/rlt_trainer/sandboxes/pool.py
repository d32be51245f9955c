"""The sandbox pods of a job: found by DNS, claimed one by one, replaced by Kubernetes when they end."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlt_api.blocks.rollout import MultiTurn
from rlt_pod.sandbox.protocol import HOST_VARIABLE, PORT, derive_key
from rlt_trainer.sandboxes.sandbox import Address, Sandbox, SandboxError, claim_at

FIELD = "rollout.multiTurn.sandbox"
SEARCH_INTERVAL_S = 0.2
"""Interval between searches while no pod is free."""
CHECK_TIMEOUT_S = 60.0
"""Time for the program of a check."""
TOKEN_VARIABLE = "RAY_AUTH_TOKEN_PATH"
"""Variable with the file of Ray's token, from which the key of the sandboxes is derived."""

Find = Callable[[], Awaitable[Sequence[Address]]]


@dataclass
class Statistics:
    """Claims of a pool."""

    claim_seconds: list[float] = field(default_factory=list)
    """Time until each claim had a pod, without the time until fewer than `size` sandboxes were claimed."""
    failed: int = 0
    """Number of claims without a pod, and of lost pods."""


class SandboxPool:
    """Claims sandboxes, at most `size` at the same time. It belongs to one event loop."""

    def __init__(self, find: Find, key: str, *, size: int, timeout_s: float) -> None:
        """`find` returns the addresses of ready pods, with some that were claimed or have ended since.

        `timeout_s` limits the search of one claim, not the time until fewer than `size` sandboxes are claimed.
        """
        self._find = find
        self._key = key
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(size)
        self._searching = asyncio.Lock()
        self._claimed: set[Address] = set()
        self._statistics = Statistics()

    @asynccontextmanager
    async def claim(self) -> AsyncIterator[Sandbox]:
        """Yield a sandbox, and release it at the end. Raises SandboxError if no pod becomes free."""
        async with self._slots:
            now = asyncio.get_running_loop().time
            begin = now()
            try:
                address, sandbox = await self._search()
            except SandboxError:
                self._statistics.failed += 1
                raise
            self._statistics.claim_seconds.append(now() - begin)
            try:
                yield sandbox
            finally:
                self._statistics.failed += sandbox.lost is not None
                self._claimed.discard(address)
                sandbox.release()

    def take_statistics(self) -> Statistics:
        """Return the statistics since the last call."""
        taken = self._statistics
        self._statistics = Statistics()
        return taken

    async def _search(self) -> tuple[Address, Sandbox]:
        try:
            async with asyncio.timeout(self._timeout_s), self._searching:
                while True:
                    addresses = [each for each in await self._find() if each not in self._claimed]
                    for address in random.sample(addresses, len(addresses)):
                        if sandbox := await claim_at(address, self._key):
                            self._claimed.add(address)
                            return address, sandbox
                    await asyncio.sleep(SEARCH_INTERVAL_S)
        except TimeoutError as error:
            raise SandboxError(f"no sandbox pod became free within {self._timeout_s:g} s") from error


async def check_pool(pool: SandboxPool, program: str = "python3") -> None:
    """Run python3 in a sandbox, and find a program. Raises ValueError if it fails."""
    find = "import shutil, sys; print('ready' if shutil.which(sys.argv[1]) else 'missing')"
    try:
        async with pool.claim() as sandbox:
            result = await sandbox.run(["python3", "-c", find, program], timeout_s=CHECK_TIMEOUT_S)
    except SandboxError as error:
        raise ValueError(
            f"{FIELD}: {error}. Look at the pods with the label rlt.dev/sandbox-of and at their events: the image "
            "must be pullable and have python3, and nodes, queue and quota must have room for poolSize pods."
        ) from error
    if result.output == "missing\n":
        raise ValueError(
            f"rollout.multiTurn.agent.command: {program[:200]} is not a program of the sandbox's image. Use another "
            f"one, or another {FIELD}.image."
        )
    if result.output != "ready\n":
        problem = f"{result.output}{result.problem}"
        raise ValueError(f"{FIELD}: python3 does not run in its pods: {problem}. Use another image or more memory.")


def open_pool(multi_turn: MultiTurn) -> SandboxPool | None:
    """Open the pool of the job whose pod this is. None if the job has none.

    Raises ValueError outside of a job with sandbox pods.
    """
    sandbox = multi_turn.sandbox
    if sandbox is None:
        return None
    host = os.environ.get(HOST_VARIABLE)
    token = os.environ.get(TOKEN_VARIABLE)
    if not host or not token:
        raise ValueError(
            f"{FIELD}: this run has no sandbox pods, which only a job in Kubernetes has. Remove the field."
        )

    async def find() -> list[Address]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, PORT, type=socket.SOCK_STREAM)
        except OSError:  # the name has no address until the first pod is ready
            return []
        return [(str(address[0]), PORT) for *_, address in found]

    key = derive_key(Path(token).read_text().strip())
    return SandboxPool(find, key, size=sandbox.pool_size, timeout_s=sandbox.claim_timeout_seconds)
