"""An event loop in a thread: blocking calls that also work in a notebook, whose own loop runs already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class BackgroundLoop:
    """Runs coroutines in its own thread, until `close` or the end of the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rlt-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Wait for the result of a coroutine. An interrupt, such as Ctrl-C, cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def run_async(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """As `run`, for a caller with its own event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Stop the loop after one more coroutine. Later calls fail."""
        if self.loop.is_closed():
            return
        if threading.current_thread() is self._thread:  # the garbage collector runs in any thread
            ended = self.loop.create_task(_run_last(last))
            ended.add_done_callback(lambda _: self.loop.stop())
            return
        self.run(_run_last(last))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Stream(Generic[Item]):
    """The items of an asynchronous generator, for `for` and for `async for`. Each iteration starts a new generator."""

    def __init__(self, loop: BackgroundLoop, start: Callable[[], AsyncGenerator[Item]]) -> None:
        self._loop = loop
        self._start = start

    def __iter__(self) -> Iterator[Item]:
        items = self._start()
        try:
            while found := self._loop.run(_next(items)):
                yield found[0]
        finally:
            if not self._loop.loop.is_closed():  # else `close` has ended the generator
                self._loop.run(_close(items))

    async def __aiter__(self) -> AsyncIterator[Item]:
        items = self._start()
        try:
            while found := await self._loop.run_async(_next(items)):
                yield found[0]
        finally:
            if not self._loop.loop.is_closed():
                await self._loop.run_async(_close(items))


async def _run_last(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    if last is not None:
        await last()


async def _next(items: AsyncGenerator[Item]) -> tuple[Item] | None:
    """The next item. None at the end."""
    async for item in items:
        return (item,)
    return None


async def _close(items: AsyncGenerator[Any]) -> None:
    await items.aclose()
