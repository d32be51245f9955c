"""Processes that fork from a process that has imported torch and transformers.

These imports take 5 s of CPU time, more than most programs of a rank. `multiprocessing`'s fork server does them once
for each pytest worker. It runs no tensor operation, so a forked process starts without threads of torch.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

R = TypeVar("R")
_meeting = ""
"""The file at which the ranks of one `run_ranks` meet. A file cannot be taken by another process, as a port can."""

IMPORTS = [
    "rlt_trainer.workers.train_worker",
    "rlt_trainer.policy.actor",
    "rlt_trainer.checkpoint.export",
    "transformers.models.qwen3.modeling_qwen3",
]
TIMEOUT_S = 300


def run_process(program: Callable[..., Any], *arguments: Any) -> int | None:
    """Call `program`, a function of a module, in a process. Return its exit code: -N after signal N.

    Returns None if the process runs longer than TIMEOUT_S. Then it is killed.
    """
    process = _start(program, *arguments)
    process.join(TIMEOUT_S)
    exit_code = process.exitcode
    process.kill()
    process.join()
    return exit_code


def run_ranks(program: Callable[..., R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
    """Call `program` in a process for each tuple of arguments, all at the same time. Return the results in order.

    Raises AssertionError for the first process that raises or dies, or if the results take longer than TIMEOUT_S. Then
    the other processes are killed.
    """
    pipes = [multiprocessing.Pipe(duplex=False) for _ in arguments]
    with tempfile.TemporaryDirectory(prefix="rlt-ranks-") as folder:
        processes = [
            _start(_send_result, sender, f"{folder}/meeting", program, each)
            for (_, sender), each in zip(pipes, arguments, strict=True)
        ]
        for _, sender in pipes:
            sender.close()  # the pipe of a process that dies is then at its end
        try:
            results = _receive([receiver for receiver, _ in pipes])
            for process in processes:
                process.join(TIMEOUT_S)
            assert [process.exitcode for process in processes] == [0] * len(processes)
        finally:
            for process in processes:
                process.kill()
                process.join()
    return results


def join(rank: int, ranks: int) -> None:
    """Join the process group of the ranks that one `run_ranks` started."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{_meeting}", rank=rank, world_size=ranks)


def _start(program: Callable[..., Any], *arguments: Any) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTS)
    process = context.Process(target=program, args=arguments)
    process.start()
    return process


def _send_result(sender: Connection, meeting: str, program: Callable[..., R], arguments: tuple[Any, ...]) -> None:
    global _meeting
    _meeting = meeting
    try:
        result = program(*arguments)
        error = None
    except BaseException:
        result = None
        error = traceback.format_exc()
    sender.send((result, error))
    for child in multiprocessing.active_children():  # such as vLLM's engine after an error: the exit would wait for it
        child.kill()


def _receive(receivers: Sequence[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(results) < len(receivers):
        pending = [receiver for rank, receiver in enumerate(receivers) if rank not in results]
        ready = wait(pending, deadline - time.monotonic())
        assert ready, f"{len(pending)} of {len(receivers)} ranks have no result after {TIMEOUT_S} s"
        for rank in (receivers.index(receiver) for receiver in ready):
            try:
                results[rank], error = receivers[rank].recv()
            except EOFError:
                error = "the process died"
            assert error is None, f"rank {rank}: {error}"
    return [results[rank] for rank in range(len(receivers))]
