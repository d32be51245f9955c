"""A run on one rank resumes from a checkpoint of two ranks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from ranks import join, run_ranks


def train(
    model: str, checkpoints: Path, *, optimizer: str, ranks: int, steps: range, asynchronous: bool = False
) -> dict[str, Any]:
    """Take the steps in separate processes, resumed from the previous checkpoint. Return the results of rank 0."""
    common = (model, checkpoints, optimizer, steps, asynchronous)
    return run_ranks(one_rank, [(*common, rank, ranks) for rank in range(ranks)])[0]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_a_run_resumes_with_another_number_of_ranks(tiny_model: str, tmp_path: Path, optimizer: str) -> None:
    two = train(tiny_model, tmp_path, optimizer=optimizer, ranks=2, steps=range(1, 5), asynchronous=True)
    assert two["outcomes"] == [[step, None] for step in range(1, 5)]
    shutil.rmtree(tmp_path / "step-4")
    one = train(tiny_model, tmp_path, optimizer=optimizer, ranks=1, steps=range(4, 5))
    assert one["states"][0] == two["states"][3], "bit for bit what was saved"
    assert one["losses"][-1] == pytest.approx(two["losses"][-1], rel=1e-5)
    assert one["states"][1] == pytest.approx(two["states"][4], rel=1e-4)


def one_rank(
    model: str, checkpoints: Path, optimizer: str, steps: range, asynchronous: bool, rank: int, ranks: int
) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from torch import Tensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torchao.optim.subclass_8bit import OptimState8bit

    from rlt_api.blocks.algorithm import Algorithm
    from rlt_api.blocks.checkpoint import Checkpoint
    from rlt_api.blocks.model import Model
    from rlt_api.blocks.training import Training
    from rlt_trainer.batches.sequences import Sequences
    from rlt_trainer.checkpoint.driver_state import DriverState
    from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
    from rlt_trainer.checkpoint.resume import resume
    from rlt_trainer.checkpoint.saver import Saver
    from rlt_trainer.policy.actor import Actor

    torch.set_num_threads(1)
    join(rank, ranks)
    actor = Actor(
        model,
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (ranks,)),
        algorithm=Algorithm(),
        training=Training.model_validate(
            {"totalSteps": 9, "ppoMicroBatchSizePerDevice": 4, "learningRate": 1e-3, "optimizer": optimizer}
        ),
        temperature=1.0,
        max_response_length=8,
    )
    config = Checkpoint(asynchronous=asynchronous)
    saver = Saver(checkpoints, config)
    parts: Parts = {"model": ModelState(actor.model), "optimizer": OptimizerState(actor.model, actor.optimizers)}

    @torch.no_grad()
    def checksum(values: Iterable[Tensor]) -> float:
        whole = [value.full_tensor() if isinstance(value, DTensor) else value for value in values]
        whole = [value.dequantize() if isinstance(value, OptimState8bit) else value for value in whole]
        return float(sum(value.double().square().sum() for value in whole))

    def state() -> list[float]:
        moments = [value for each in actor.optimizers[0].state.values() for value in each.values()]
        return [checksum(actor.model.parameters()), checksum(moments)]

    resumed = resume(checkpoints, config, parts)
    assert (resumed.step if resumed else 0) == steps.start - 1
    states = [state()]
    losses = []
    outcomes = []
    for step in steps:
        tokens = torch.randint(0, 256, (4, 6), generator=torch.Generator().manual_seed(step)).tolist()
        sequences = Sequences.pad([[65, 66]] * 4, tokens, pad_token_id=0)
        result = actor.supervised_step(sequences.rows(slice(rank * 4 // ranks, (rank + 1) * 4 // ranks)), 24)
        loss = torch.tensor(result.shares["warmup/loss"])
        dist.all_reduce(loss)
        losses.append(loss.item())
        outcomes += saver.save(step, parts, DriverState())
        states.append(state())
    outcomes += saver.collect_outcomes(wait=True)
    dist.destroy_process_group()
    ended = [[outcome.step, outcome.error] for outcome in outcomes]
    return {"states": states, "losses": losses, "outcomes": ended}
