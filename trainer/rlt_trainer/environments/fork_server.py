"""`python -m rlt_trainer.environments.fork_server CONFIG FD`: forks a process for each conversation.

The server imports the environment's module once. For each file descriptor that it receives on the socket FD, it forks a
process that creates an environment and serves its calls on that descriptor: one line of JSON for each call and reply.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.environment import Environment, load_environment

MAX_MEMORY_BYTES = 4 * 2**30
"""Memory that one environment may write to (RLIMIT_DATA)."""


def main(config: str, descriptor: int) -> None:
    """Serve until the parent process closes the socket."""
    os.dup2(2, 1)
    control = socket.socket(fileno=descriptor)
    multi_turn = MultiTurn.model_validate_json(config)
    try:
        environment = load_environment(multi_turn)
    except (Exception, SystemExit) as error:
        control.sendall(_dump({"error": describe(error)}))
        return
    control.sendall(_dump({"ready": True}))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            serve(socket.socket(fileno=descriptors[0]), environment, multi_turn.timeout_seconds)
            os._exit(0)
        os.close(descriptors[0])


def serve(connection: socket.socket, environment: Callable[[], Environment], timeout_s: float) -> None:
    """Serve the calls of one conversation in this process, until the parent closes the connection."""
    os.setsid()  # killpg then also ends the environment's child processes
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.sendall(_dump({"pid": os.getpid()}))
    made: Environment | None = None
    with connection.makefile("r", encoding="ascii") as calls:
        for line in calls:
            # The parent kills this process on timeout. The alarm ends it if the parent has exited.
            signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 5)
            call = json.loads(line)
            try:
                made = made or environment()
                value = made.reset(Prompt(**call["reset"])) if "reset" in call else made.step(call["step"])
                reply = _dump({"value": value})
            except (Exception, SystemExit) as error:
                reply = _dump({"error": describe(error)})
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.sendall(reply)


def describe(error: BaseException) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {error}"[:500]


def _dump(message: dict[str, Any]) -> bytes:
    return json.dumps(message, default=float).encode() + b"\n"  # numpy's numbers are not JSON


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
