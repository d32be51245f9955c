"""A port on this machine that leads to a port in the pods of a job.

kubectl port-forward reaches the loopback interface of a pod only, and debugpy listens at the IP of the pod. Instead
each connection starts pod_relay.py in the head pod, which reaches all pods of the job, and uses its standard input and
output.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rlt_cli.output import print_message
from rlt_pod import relay as pod_relay

HOST = "127.0.0.1"
BLOCK = 64 * 1024


def build_relay(host: str, port: int) -> list[str]:
    """Build the command that runs in a pod."""
    return ["python3", "-c", inspect.getsource(pod_relay), host, str(port)]


@asynccontextmanager
async def open_tunnel(command: Sequence[str], port: int) -> AsyncIterator[int]:
    """Yield the port on this machine; `port` 0 selects a free one. `command` runs for each connection.

    Raises OSError if the port is in use.
    """
    open_connections: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        open_connections.add(task)
        try:
            await _serve(command, reader, writer)
        finally:
            open_connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connect, HOST, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


async def _serve(command: Sequence[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect one client to a process of the command, until one of them ends the connection."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    sending = asyncio.create_task(_copy(reader, process.stdin))
    try:
        await _copy(process.stdout, writer)
        if errors := (await process.stderr.read()).decode(errors="replace").strip():
            print_message(f"the connection to the pod ended: {errors.splitlines()[-1]}")
    finally:
        sending.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        process.stdin.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the source ends or the target is closed."""
    with contextlib.suppress(ConnectionError, BrokenPipeError):
        while data := await source.read(BLOCK):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
