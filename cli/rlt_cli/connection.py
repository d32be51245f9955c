"""The connection of a command, and its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from rlt import connection
from rlt.kube_context import KubeContext
from rlt_cli.output import print_message

Result = TypeVar("Result")


@asynccontextmanager
async def connect(kube_context: KubeContext) -> AsyncIterator[connection.Connection]:
    """Connect as kubectl does, and print what the connection waits for. Raises RltError."""
    async with connection.connect(kube_context, notify=print_message) as connected:
        yield connected


def run(coroutine: Coroutine[Any, Any, Result], *, detached: str | None = None) -> Result:
    """Run the coroutine of a command. On Ctrl-C, print `detached` and exit with code 130."""
    try:
        return asyncio.run(coroutine)
    except KeyboardInterrupt:
        if detached is None:
            raise
        click.echo(f"\n{detached}", err=True)
        raise click.exceptions.Exit(130) from None


def detached_message(command_line: str) -> str:
    """The message after Ctrl-C in a command that only follows the job."""
    return f"detached; the job continues. To reattach: {command_line}"
