"""Transfer of weights to another process, in shared memory and with collectives, on CPUs and on GPUs.

This file is also the program of the receiver: `python test_rollout_weight_channel.py DEVICE ADDRESS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlt_trainer.cluster.rendezvous import listen_for_ranks
from rlt_trainer.rollout.delta_channel import join_group
from rlt_trainer.rollout.open_receiver import open_receiver
from rlt_trainer.rollout.shared_channel import SharedReceiver, SharedSender
from rlt_trainer.rollout.weight_channel import (
    GroupAddress,
    parse_address,
    receive_weights,
    send_weights,
)
from rlt_trainer.rollout.weight_sums import sum_weights

ROUNDS = 2
HOST = "127.0.0.1"


def weights(device: str, factor: float) -> dict[str, Tensor]:
    """Tensors of several sizes and dtypes, for more than one small bucket."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"layers.0.a": (300, 50), "layers.1.b": (7,), "norm": (100, 9), "layers.1.c": ()}
    return {
        name: (factor * torch.randn(shape, generator=generator)).to(device, torch.bfloat16 if shape else torch.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "device"),
    [
        ("group", "cpu"),
        ("shared", "cpu"),
        pytest.param("group", "cuda", marks=pytest.mark.gpu(devices=2)),
        pytest.param("shared", "cuda", marks=pytest.mark.gpu),
    ],
)
def test_another_process_receives_the_weights_sent(kind: str, device: str) -> None:
    shared = SharedSender(torch.device(device)) if kind == "shared" else None
    store = listen_for_ranks(HOST)
    address = asdict(shared.address if shared else GroupAddress(HOST, store.port, 1, 1, 2, [HOST] * 2))
    command = [sys.executable, __file__, device, json.dumps(address)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        sender = shared or join_group(GroupAddress(HOST, store.port, 1, 0, 2, [HOST] * 2), torch.device(device), store)
        sender.limit = 4096
        expected = []
        for factor in range(1, 1 + ROUNDS):
            sent = weights(device, factor)
            sender.version = factor
            send_weights(sent.items(), sender)
            expected.append([device, factor, sum_weights(sent.items()).parts])
        output, _ = receiver.communicate(timeout=300)
    sender.close()
    assert receiver.returncode == 0
    assert json.loads(output.splitlines()[-1]) == expected


def test_a_receiver_that_ends_during_a_transfer_is_an_error_of_the_sender() -> None:
    sender = SharedSender(torch.device("cpu"))
    sender.limit = 100
    receiver = SharedReceiver(sender.address, torch.device("cpu"))
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send_weights, weights("cpu", 1).items(), sender)
        assert receiver.get() is not None
        receiver.close()
        with pytest.raises(ConnectionError, match="the engine's process ended during a weight sync"):
            sending.result(60)
    sender.close()


def test_shared_memory_is_used_again_once_no_tensor_holds_it() -> None:
    sender = SharedSender(torch.device("cpu"))
    sender.limit = 30_000
    receiver = SharedReceiver(sender.address, torch.device("cpu"))
    before = find_blocks()
    kept = []
    with ThreadPoolExecutor(1) as threads:
        for factor in range(1, 6):
            sent = {f"{number}.{name}": each for number in range(4) for name, each in weights("cpu", factor).items()}
            sending = threads.submit(send_weights, sent.items(), sender)
            for name, tensor in receive_weights(receiver):
                assert torch.equal(tensor, sent[name])
                if name == "2.norm":
                    kept.append((tensor, sent[name]))
            sending.result(60)
            assert all(torch.equal(received, expected) for received, expected in kept)
    assert len(kept) < len(find_blocks() - before) <= len(kept) + 3, "of 40 buckets"
    sender.close()


def find_blocks() -> set[int]:
    """Return the inodes of this process's shared memory. Earlier tests may have left some."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread has closed it
            if "memfd:rlt-weights" in os.readlink(file):
                found.add(file.stat().st_ino)
    return found


def receive(device: str, fields: dict[str, Any]) -> list[tuple[str, int, dict[str, int]]]:
    """Return device, version and sums of each round's weights."""
    if device == "cuda" and "socket" not in fields:
        torch.cuda.set_device(1)
    channel = open_receiver(parse_address(fields), torch.device(device))
    rounds = []
    for _ in range(ROUNDS):
        received = dict(receive_weights(channel))
        assert not channel.received.damaged
        sums = sum_weights(received.items()).parts
        rounds.append((received["norm"].device.type, channel.received.version, sums))
    return rounds


if __name__ == "__main__":
    print(json.dumps(receive(sys.argv[1], json.loads(sys.argv[2]))))
