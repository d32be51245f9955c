"""Transfer of weights to another process, with gloo and with NCCL.

This file is also the program of the receiver: `python test_rollout_weight_channel.py DEVICE PORT`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from rlt_trainer.cluster.rendezvous import free_port
from rlt_trainer.rollout.weight_channel import WeightChannel
from rlt_trainer.rollout.weight_sums import sum_weights

ROUNDS = 2


def weights(device: str, factor: float) -> dict[str, Tensor]:
    """Tensors of several sizes and dtypes, for more than one small bucket."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"layers.0.a": (300, 50), "layers.1.b": (7,), "norm": (100, 9), "layers.1.c": ()}
    return {
        name: (factor * torch.randn(shape, generator=generator)).to(device, torch.bfloat16 if shape else torch.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu(devices=2))])
def test_another_process_receives_the_weights_sent(device: str) -> None:
    port = free_port("127.0.0.1")
    command = [sys.executable, __file__, device, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        if device == "cuda":
            torch.cuda.set_device(0)
        channel = WeightChannel("127.0.0.1", port, rank=0, size=2, device=torch.device(device))
        expected = []
        for factor in range(1, 1 + ROUNDS):
            sent = weights(device, factor)
            channel.send(sent.items(), limit=4096)
            expected.append({str(layer): value for layer, value in sum_weights(sent.items()).items()})
        output, _ = receiver.communicate(timeout=300)
    assert receiver.returncode == 0
    assert json.loads(output.splitlines()[-1]) == [[device, sums] for sums in expected]


def receive(device: str, port: int) -> list[tuple[str, dict[str, int]]]:
    """Return the device and the sums of the weights of each round."""
    if device == "cuda":
        torch.cuda.set_device(1)
    channel = WeightChannel("127.0.0.1", port, rank=1, size=2, device=torch.device(device))
    received = [dict(channel.receive()) for _ in range(ROUNDS)]
    return [
        (each["norm"].device.type, {str(layer): value for layer, value in sum_weights(each.items()).items()})
        for each in received
    ]


if __name__ == "__main__":
    print(json.dumps(receive(sys.argv[1], int(sys.argv[2]))))
