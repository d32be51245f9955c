"""One process of the sandbox: loads a function and calls it with what comes in, a line of JSON for each call.

The answers go to what was standard output when it started; what the function prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from rlt_trainer.rewards.outcome import Failure, outcome


def main(target: str, seconds: float, memory_bytes: int) -> None:
    """Serve until the parent closes the pipe, or is gone while a call hangs."""
    requests, replies = os.fdopen(os.dup(0), encoding="ascii"), os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        function = load(target)
    except (Exception, SystemExit) as error:
        reply({"refused": f"{type(error).__name__}: {error}"})
        return
    reply({"ready": True})
    for line in requests:
        # The parent ends this process when time is up. The alarm is for a parent that is gone: its default action
        # needs no Python, which a regular expression may hold for hours.
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 5)
        result = outcome(function, json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(result, Failure):
            reply({"reason": result.reason, "message": result.message})
        else:
            reply({"score": result})


def load(target: str) -> Callable[..., Any]:
    """The function `module:function`."""
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{name} is no function")
    return function  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
