"""The sandbox of one conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from rlt_trainer.sandboxes.pool import SandboxPool
from rlt_trainer.sandboxes.record import Result
from rlt_trainer.sandboxes.sandbox import Sandbox, SandboxError
from rlt_trainer.sandboxes.user_sandbox import Exchange, answer


class Claim:
    """Claims a pod when it is first needed, and releases it at the end of the context."""

    def __init__(self, pool: SandboxPool, timeout_s: float) -> None:
        """`timeout_s` limits a program of `open_exchange`, if its request has no timeout."""
        self.record: Mapping[str, Any] | None = None
        """What happened in the pod: Sandbox.describe. Set by `release`. None if no pod was claimed."""
        self._pool = pool
        self._timeout_s = timeout_s
        self._claiming = asyncio.Lock()
        self._held = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._failure: SandboxError | None = None

    async def get(self) -> Sandbox:
        """Return the sandbox. Raises SandboxError if no pod became free, and after the release."""
        async with self._claiming:
            if self._sandbox is None and self._failure is None:
                try:
                    self._sandbox = await self._held.enter_async_context(self._pool.claim())
                except SandboxError as error:
                    self._failure = error
            if self._failure is not None:  # a release can come while a pod is claimed
                await self._held.aclose()
                raise self._failure
            assert self._sandbox is not None
            return self._sandbox

    def call_at_end(self, function: Callable[[], Awaitable[None]]) -> None:
        """Call a function before the pod ends."""
        self._held.push_async_callback(function)

    def check(self) -> None:
        """Raise SandboxError if the pod is lost."""
        if self._sandbox is not None and self._sandbox.lost is not None:
            raise self._sandbox.lost

    async def release(self) -> None:
        """Describe the sandbox, and end its pod."""
        if self._sandbox is not None and self._failure is None:
            self.record = await self._sandbox.describe()
        await self._close()

    def open_exchange(self) -> Exchange:
        """Return what answers requests of UserSandbox in other threads. It raises SandboxError."""
        loop = asyncio.get_running_loop()

        async def answer_one(request: dict[str, Any]) -> dict[str, Any]:
            sandbox = await self.get()

            async def run(command: Sequence[str], *, timeout: float | None, **given: Any) -> Result:
                limit_s = self._timeout_s if timeout is None else timeout
                return await sandbox.run(command, timeout_s=limit_s, **given)

            return await answer(sandbox, request, run)

        return lambda request: asyncio.run_coroutine_threadsafe(answer_one(request), loop).result()

    async def _close(self) -> None:
        self._failure = self._failure or SandboxError("the conversation has ended")
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
