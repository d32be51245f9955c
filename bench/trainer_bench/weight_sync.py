"""A weight sync within a pod: from the train worker's tensors to an engine's in another process."""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
from bench_report import Row
from torch import Tensor

from rlt_trainer.cluster.rendezvous import listen_for_ranks
from rlt_trainer.rollout.delta_channel import join_group
from rlt_trainer.rollout.open_receiver import open_receiver
from rlt_trainer.rollout.shared_channel import SharedSender
from rlt_trainer.rollout.weight_channel import (
    ChannelAddress,
    GroupAddress,
    WeightSender,
    receive_weights,
    send_weights,
)
from trainer_bench.interleaved import Times, compare

TENSORS = 64
ELEMENTS = 2**22
"""Of each tensor. All tensors together have 1 GiB in float32."""
ROUNDS = 3
MAX_RATIO = 2.0
CPU = torch.device("cpu")
LOOPBACK = "127.0.0.1"


def measure() -> Row:
    """Shared memory, as for colocated engines."""
    sender = SharedSender(CPU)
    return describe(
        "weight sync within a pod, per GB, against a copy of the same bytes", sync(lambda: sender, sender.address)
    )


def measure_group() -> Row:
    """Changes over TCP, as for engines in other pods: one byte in 50 has changed. The other end is on this machine."""
    store = listen_for_ranks(LOOPBACK)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sender, receiver = (GroupAddress(LOOPBACK, store.port, 1, member, 2, [LOOPBACK] * 2) for member in range(2))
    times = sync(lambda: join_group(sender, CPU, store), receiver)
    return describe("weight sync between pods, per GB, against a copy of the same bytes", times)


def describe(what: str, times: tuple[Times, Times]) -> Row:
    """Build the row."""
    old, new = times
    return Row(
        what,
        f"at most {MAX_RATIO:g} x",
        f"{old}; {new.ratio:.2f} x of a copy into new memory ({statistics.median(new.other):.3g} s)",
        old.ratio <= MAX_RATIO,
        {"copy": vars(old), "copy_into_new_memory": vars(new)},
    )


def sync(open_sender: Callable[[], WeightSender], address: ChannelAddress) -> tuple[Times, Times]:
    """Sync weights to a process with an engine's tensors, and copy them in this process, in turns.

    `open_sender` returns once the receiver has joined.

    Returns the comparisons with copies into memory in use, and into new memory, such as each bucket's.
    """
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    connection, other_end = context.Pipe()
    process = context.Process(target=receive, args=(other_end, address), daemon=True)
    process.start()
    channel = open_sender()
    weights = build_weights()
    copies = build_weights()
    assert connection.recv() == "ready"

    def change() -> None:
        for tensor in weights.values():
            tensor.view(torch.uint8)[::50] += 1

    def send() -> None:
        connection.send("receive")
        send_weights(weights.items(), channel)
        assert connection.recv() == "received"

    def copy() -> None:
        for name, tensor in weights.items():
            copies[name].copy_(tensor)

    def copy_into_new_memory() -> None:
        _ = [tensor.clone() for tensor in weights.values()]

    others = (copy, copy_into_new_memory)
    old, new = (compare(send, other, rounds=ROUNDS, before=change) for other in others)
    process.kill()
    process.join()
    return old, new


def receive(connection: Connection, address: ChannelAddress) -> None:
    """Load the weights of each sync, as TransformersEngine does."""
    torch.set_num_threads(1)
    weights = build_weights()
    channel = open_receiver(address, CPU)
    connection.send("ready")
    while connection.recv() == "receive":
        for name, tensor in receive_weights(channel):
            weights[name].copy_(tensor)
        connection.send("received")


def build_weights() -> dict[str, Tensor]:
    """Build tensors whose memory is in use."""
    return {f"layers.{number}.weight": torch.full((ELEMENTS,), float(number)) for number in range(TENSORS)}


if __name__ == "__main__":
    print(measure(), measure_group(), sep="\n")
