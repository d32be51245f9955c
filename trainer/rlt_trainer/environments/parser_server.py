"""`python -m rlt_trainer.environments.parser_server FD`: forks processes that parse turns of the policy.

The text of the policy is hostile input for a parser: a regular expression can take hours and hold the interpreter lock.
Standard input has the names of the parsers and the tokenizer, pickled by turn_parser.py. The server imports vLLM once,
and its forks share the memory. For each file descriptor on the socket FD, it forks a process that parses on that
descriptor: one line of JSON for each turn and its parts.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from typing import Any

from transformers.dynamic_module_utils import init_hf_modules

from rlt_trainer.environments.fork_server import describe, dump, serve_forks
from rlt_trainer.sandboxes.user_sandbox import Exchange

TIMEOUT_S = 10.0
"""Timeout for the parts of one turn. vLLM's parsers take up to 4 ms."""


def main(descriptor: int) -> None:
    """Serve until the parent process closes the socket."""
    os.dup2(2, 1)
    os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"  # the parsers log each invalid call with its text
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    control = socket.socket(fileno=descriptor)
    try:
        from rlt_trainer.environments.vllm_parsers import VllmParser

        # The class of a tokenizer with trustRemoteCode is in a module that this makes importable.
        init_hf_modules()  # type: ignore[no-untyped-call]
        parser = VllmParser(**pickle.load(sys.stdin.buffer))
    except ValueError as error:
        control.sendall(dump({"error": str(error)}))
        return
    except Exception as error:
        control.sendall(dump({"error": f"rollout.multiTurn.format: {describe(error)}. Use the trainer's image."}))
        return

    def serve(call: dict[str, Any], exchange: Exchange) -> Any:
        """Return None for a turn on which a parser raises an exception."""
        try:
            return parser.parse(**call)
        except Exception:
            return None

    serve_forks(control, serve, alarm_s=2 * TIMEOUT_S)


if __name__ == "__main__":
    main(int(sys.argv[1]))
