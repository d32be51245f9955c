"""One claimed sandbox pod: a connection to its server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlt_pod.sandbox.protocol import HEADER, ProtocolError, decode, encode, prove, read_length

CONNECT_TIMEOUT_S = 2.0
"""Time for a connection and the answer to a claim."""
ANSWER_TIMEOUT_S = 30.0
"""Time for the answer after a program's own timeout. The server may wait for a CPU."""

Address = tuple[str, int]
"""IP address and port."""


class SandboxError(Exception):
    """A sandbox pod was lost, or none became ready. The programs of the policy may have caused it, or not."""


@dataclass(frozen=True)
class Result:
    """The end of a program."""

    output: str
    """What it printed, up to 1 MiB."""
    problem: str
    """How it was ended, or why it did not start. Empty if it ended itself."""


class Sandbox:
    """A claimed pod. It belongs to this connection, and ends with it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: str) -> None:
        self.pod = pod
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    async def run(self, command: Sequence[str], *, stdin: str, timeout_s: float) -> Result:
        """Run a program in the folder of earlier ones. Programs of one sandbox run one after the other.

        Raises SandboxError if the pod is lost.
        """
        request = {"command": list(command), "stdin": stdin, "timeoutSeconds": timeout_s}
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s + ANSWER_TIMEOUT_S):
                    answer = await _exchange(self._reader, self._writer, request)
            except (OSError, EOFError, TimeoutError, ProtocolError) as error:
                self.release()
                raise SandboxError(f"sandbox pod {self.pod} was lost: {type(error).__name__}: {error}") from error
        return Result(str(answer.get("output", "")), str(answer.get("problem", "")))

    def release(self) -> None:
        """End the pod with everything in it."""
        self._writer.close()


async def claim_at(address: Address, key: str) -> Sandbox | None:
    """Claim the pod at the address; None if it is used, has ended, or does not accept the key."""
    writer = None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*address)
            nonce = (await _read(reader)).get("nonce")
            answer = await _exchange(reader, writer, {"proof": prove(key, str(nonce))})
    except (OSError, EOFError, TimeoutError, ProtocolError):
        if writer:
            writer.close()
        return None
    except asyncio.CancelledError:
        if writer:
            writer.close()
        raise
    return Sandbox(reader, writer, str(answer.get("pod", address[0])))


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: dict[str, Any]
) -> dict[str, Any]:
    writer.write(encode(message))
    await writer.drain()
    return await _read(reader)


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    length = read_length(await reader.readexactly(HEADER.size))
    return decode(await reader.readexactly(length))
