"""One process of the sandbox: loads a function and calls it once for each line of JSON on standard input.

Replies go to the process's original standard output, and so do requests for the sandbox of the conversation, each with
its answer on standard input. Output of the function goes to standard error.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from rlt_trainer.rewards.outcome import Failure, call_reward, call_tool
from rlt_trainer.sandboxes.user_sandbox import UserSandbox


def main(target: str, timeout_s: float, memory_bytes: int, call: Callable[..., Any]) -> None:
    """Serve calls until the parent process closes the pipe, or has exited while a call hangs."""
    requests = os.fdopen(os.dup(0), encoding="ascii")
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        function = load_function(target)
    except (Exception, SystemExit) as error:
        reply({"error": f"{type(error).__name__}: {error}"})
        return
    takes_sandbox = call is call_reward and has_parameter(function, "sandbox")
    reply({"takes_sandbox": takes_sandbox})
    alarm_s = 2 * timeout_s + 5

    def exchange(request: dict[str, Any]) -> dict[str, Any]:
        signal.setitimer(signal.ITIMER_REAL, 0)
        reply({"request": request})
        line = requests.readline()
        if not line:  # the parent has exited
            os._exit(1)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        answer: dict[str, Any] = json.loads(line)
        return answer

    for line in requests:
        sandbox = UserSandbox(exchange)
        given = {"sandbox": sandbox} if takes_sandbox else {}
        # The parent kills this process on timeout. The alarm ends it if the parent has exited: SIGALRM's default action
        # needs no Python code, and a regular expression can hold the interpreter lock for hours.
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        outcome = call(function, {**given, **json.loads(line)})
        sandbox.close()  # a thread that the function left must not send requests between two calls
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(outcome, Failure):
            reply({"reason": outcome.reason, "message": outcome.message})
        else:
            reply({"value": outcome})


def load_function(target: str) -> Callable[..., Any]:
    """Import the function `module:function`."""
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{name} is not a function")
    return function  # type: ignore[no-any-return]


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except ValueError:  # some functions of C have no signature
        return False


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), {"score": call_reward, "text": call_tool}[sys.argv[4]])
