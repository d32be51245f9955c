"""Micro-batches: their size, the number of collectives, and the token limit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.micro_batches import MicroBatchSize, split_micro_batches
from rlt_trainer.policy.offload import CPU

SEQUENCES = Sequences.pad([[50, 51], [60], [50], [60]], [[70, 71, 72], [80], [90], [99]], pad_token_id=0)


class Collectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts calls of each collective in torch.distributed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.calls[func.name()] += 1
        return func(*args, **(kwargs or {}))


def count_collectives(files: str, rows: int) -> Counter[str]:
    """Count the calls in an optimizer step in micro-batches of `rows` responses, with replicas of the weights."""
    actor = Actor(
        files,
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard")),
        algorithm=Algorithm(kl_loss_coef=0),
        training=Training(total_steps=1, ppo_micro_batch_size_per_device=rows),
        temperature=1.0,
        max_response_length=8,
    )
    zeros = torch.zeros(SEQUENCES.responses.shape)
    counted = Collectives()
    with counted:
        actor.update(MiniBatch(Experience(SEQUENCES, zeros, zeros + 1), 6, 4))
    return counted.calls


def test_replicas_reduce_gradients_once_per_step(tiny_model: str, process_group: None) -> None:
    one = count_collectives(tiny_model, 4)
    four = count_collectives(tiny_model, 1)
    assert four["c10d::allreduce_"] == one["c10d::allreduce_"] == 3  # two layers and the root


@pytest.mark.parametrize(("ranks", "expected"), [(1, [[1, 2, 3], [0]]), (2, [[0, 1, 2, 3]])])
def test_the_token_limit_is_multiplied_by_the_ranks_that_share_sequences(
    ranks: int, expected: list[list[int]], process_group: None
) -> None:
    """As in verl: ppo_max_token_len_per_gpu is multiplied by ulysses_sequence_parallel_size."""
    training = Training(
        total_steps=1, use_dynamic_bsz=True, ppo_max_token_len_per_device=7, context_parallel_size=ranks
    )
    size = MicroBatchSize.of(training, 1, packed=True)
    assert [rows.tolist() for rows, _ in split_micro_batches(SEQUENCES, size, CPU)] == expected
