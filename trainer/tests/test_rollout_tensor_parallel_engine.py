"""A tensor-parallel engine on two ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.rendezvous import free_port

PROMPTS = [[[50, 51], [60]], []]
"""Prompts of each rank. The second has none, but takes part in the generation."""


@pytest.fixture
def shared_memory() -> Iterator[None]:
    """Removes the shared memory of the two engines, whose name is fixed: forked processes exit without removing it."""
    remove_shared_memory()  # left by an interrupted run
    yield
    remove_shared_memory()


def remove_shared_memory() -> None:
    for file in Path("/dev/shm").iterdir():
        if "-tp:0-[0-1]-cpushm_" in file.name:
            file.unlink()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_memory")
def test_two_ranks_share_an_engine_with_the_weights_of_the_policy(
    make_config: Callable[..., TrainingConfig],
) -> None:
    config = make_config(rollout={"engine": "vllm", "tensorParallelSize": 2})
    port = free_port("127.0.0.1")
    first, second = run_ranks(one_rank, [(config, rank, port) for rank in range(2)])
    assert max(first["difference"], second["difference"]) < 1e-4
    assert second["alone"] == []
    assert [len(tokens) for tokens in first["alone"]] == [5, 5]
    assert first["both"] == first["alone"]  # a response depends on its own seed, not on those of the other rank
    assert second["both"] == first["both"][::-1]


def one_rank(config: TrainingConfig, rank: int, port: int) -> dict[str, Any]:
    import torch

    from rlt_trainer.cluster.rendezvous import Rendezvous
    from rlt_trainer.data.prompt import Prompt
    from rlt_trainer.workers.train_worker import TrainWorker

    torch.set_num_threads(1)
    process = TrainWorker(config, rank, 2, address="127.0.0.1")
    process.connect(Rendezvous("127.0.0.1", port))
    process.load_models()
    process.start_engine([Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)])
    difference = process.sync_weights()
    alone = process.generate(PROMPTS[rank], [1, 2][: len(PROMPTS[rank])])
    both = process.generate(PROMPTS[0][:: 1 - 2 * rank], [1, 2][:: 1 - 2 * rank])
    process.close()
    token_ids = {"alone": [each.token_ids for each in alone], "both": [each.token_ids for each in both]}
    return {"difference": difference, **token_ids}
