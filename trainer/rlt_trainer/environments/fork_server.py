"""`python -m rlt_trainer.environments.fork_server CONFIG FD`: forks a process for each conversation.

The server imports the module of the environment or agent once. For each file descriptor that it receives on the socket
FD, it forks a process that serves the calls of an environment, or runs an agent, on that descriptor: one line of JSON
for each call and reply.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.environment import Environment, load_agent, load_environment
from rlt_trainer.sandboxes.user_sandbox import Exchange, UserSandbox

Serve = Callable[[dict[str, Any], Exchange], Any]
"""Returns the value of a call."""
MAX_MEMORY_BYTES = 4 * 2**30
"""Memory that one environment or agent may write to (RLIMIT_DATA)."""


def main(config: str, descriptor: int) -> None:
    """Serve until the parent process closes the socket."""
    os.dup2(2, 1)
    control = socket.socket(fileno=descriptor)
    multi_turn = MultiTurn.model_validate_json(config)
    try:
        serve = serve_agent(multi_turn) if multi_turn.agent else serve_environment(multi_turn)
    except (Exception, SystemExit) as error:
        control.sendall(dump({"error": describe(error)}))
        return
    alarm_s = 0.0 if multi_turn.agent else 2 * multi_turn.timeout_seconds + 5  # an agent waits for generation
    serve_forks(control, serve, alarm_s=alarm_s)


def serve_forks(control: socket.socket, serve: Serve, *, alarm_s: float) -> None:
    """Fork a process for each file descriptor that the socket receives, until the parent process closes the socket."""
    control.sendall(dump({"ready": True}))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            start(socket.socket(fileno=descriptors[0]), serve, alarm_s=alarm_s)
            os._exit(0)
        os.close(descriptors[0])


def start(connection: socket.socket, serve: Serve, *, alarm_s: float) -> None:
    """Serve the calls of one conversation in this process, until the parent closes the connection.

    The parent kills this process on timeout. `alarm_s` ends a call if the parent has exited. 0: a thread ends it.
    """
    os.setsid()  # killpg then also ends the child processes
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.sendall(dump({"pid": os.getpid()}))

    def exchange(request: dict[str, Any]) -> dict[str, Any]:
        connection.sendall(dump({"request": request}))
        answer: dict[str, Any] = json.loads(calls.readline())
        return answer

    with connection.makefile("r", encoding="ascii") as calls:
        for line in calls:
            if not alarm_s:
                threading.Thread(target=end_with, args=(connection,), daemon=True).start()
            signal.setitimer(signal.ITIMER_REAL, alarm_s)
            try:
                reply = dump({"value": serve(json.loads(line), exchange)})
            except (Exception, SystemExit) as error:
                reply = dump({"error": describe(error)})
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.sendall(reply)


def end_with(connection: socket.socket) -> None:
    """Wait until the parent closes the connection. Then end this process and its child processes."""
    hang_up = select.poll()
    hang_up.register(connection, 0)  # not POLLIN: the answers to requests are for the agent
    hang_up.poll()
    os.killpg(0, signal.SIGKILL)


def serve_environment(multi_turn: MultiTurn) -> Serve:
    """Serve the calls of `reset` and `step`. Raises ValueError if the environment does not exist."""
    create = load_environment(multi_turn)
    made: list[Environment] = []

    def serve(call: dict[str, Any], exchange: Exchange) -> Any:
        if not made:
            made.append(create())
        return made[0].reset(Prompt(**call["reset"])) if "reset" in call else made[0].step(call["step"])

    return serve


def serve_agent(multi_turn: MultiTurn) -> Serve:
    """Serve the call of an agent, with the environment variables of its episode. Raises ValueError if it does not
    exist."""
    agent = load_agent(multi_turn)

    def serve(call: dict[str, Any], exchange: Exchange) -> Any:
        os.environ.update(call["variables"])
        sandbox = [UserSandbox(exchange)] if multi_turn.sandbox else []
        result = agent(Prompt(**call["run"]), *sandbox)
        return asyncio.run(_wait(result)) if isinstance(result, Awaitable) else result

    return serve


async def _wait(result: Awaitable[Any]) -> Any:
    return await result


def describe(error: BaseException) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {error}"[:500]


def dump(message: dict[str, Any]) -> bytes:
    """Return a message as a line of JSON."""
    return json.dumps(message, default=float).encode() + b"\n"  # numpy's numbers are not JSON


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
