"""Loss and gradient are those of the mini-batch, however many ranks and micro-batches share it.

This file is also the program of one rank: `python test_policy_ranks.py MODEL RANK RANKS PORT MICRO_BATCH`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest


def train(model: str, *, ranks: int, micro_batch: int) -> dict[str, Any]:
    """What rank 0 says after two optimizer steps, in processes of their own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    commands = [[sys.executable, __file__, model, *map(str, (rank, ranks, port, micro_batch))] for rank in range(ranks)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks
    result: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "micro_batch"), [(1, 3), (2, 8), (2, 1)])
def test_two_ranks_and_small_micro_batches_learn_the_same(tiny_model: str, ranks: int, micro_batch: int) -> None:
    whole = train(tiny_model, ranks=1, micro_batch=8)
    shared = train(tiny_model, ranks=ranks, micro_batch=micro_batch)
    assert whole["grad_norm"][0] > 1e-3
    for name, expected in whole.items():
        assert shared[name] == pytest.approx(expected, rel=1e-4, abs=1e-6), name


def one_rank(model: str, rank: int, ranks: int, port: int, micro_batch: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from rlt_api.blocks.algorithm import Algorithm
    from rlt_api.blocks.training import Training
    from rlt_trainer.policy.actor import Policy
    from rlt_trainer.sequences import Experience, MiniBatch, Sequences, shares

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    rows = 8
    lengths = [3, 1, 5, 2, 4, 4, 1, 6]
    sequences = Sequences.pad(
        [[40 + i] * (1 + i % 3) for i in range(rows)],
        [torch.randint(0, 256, (length,)).tolist() for length in lengths],
        pad_token_id=0,
    )
    shape = sequences.responses.shape
    noise = [torch.randn(shape) * 0.1 - 5.5 for _ in range(2)]
    experience = Experience(sequences, noise[0], torch.randn(rows, 1).expand(shape), ref_log_probs=noise[1])
    policy = Policy(
        model,
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (ranks,)),
        algorithm=Algorithm(kl_loss_coef=0.1, loss_agg_mode="seq-mean-token-mean"),
        training=Training(total_steps=1, ppo_micro_batch_size_per_device=micro_batch, learning_rate=1e-3),
        temperature=1.0,
    )
    part = MiniBatch(experience.rows(shares(rows, ranks)[rank]), sum(lengths), rows)
    results = [policy.update(part) for _ in range(2)]
    losses = torch.tensor([[each.shares["actor/pg_loss"], each.shares["actor/kl_loss"]] for each in results])
    dist.all_reduce(losses)
    checksum = sum(float(weights.double().square().sum()) for _, weights in policy.full_weights())
    dist.destroy_process_group()
    return {"losses": losses.flatten().tolist(), "grad_norm": [each.grad_norm for each in results], "weights": checksum}


if __name__ == "__main__":
    print(json.dumps(one_rank(sys.argv[1], *map(int, sys.argv[2:]))))
