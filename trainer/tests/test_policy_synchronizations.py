"""An update waits for its device a bounded number of times: operations whose result the host must read are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor

pytestmark = pytest.mark.usefixtures("process_group")
aten = torch.ops.aten
SYNCHRONIZING = {
    *(aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default),
    *(aten._unique2.default, aten.repeat_interleave.Tensor, aten.is_nonzero.default),
}
"""Operators that return a value to the host, or a tensor whose size depends on values."""
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""Operators that find the positions of a boolean index first."""
MAX_IN_A_MICRO_BATCH = 3
ROWS = 8


class Synchronizations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts them, as if all tensors were on a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_boolean = func in INDEXING and any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in args[1] if each is not None
        )
        if func in SYNCHRONIZING or is_boolean:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def count(tiny_model: str, *, packed: bool, micro_batches: int, algorithm: dict[str, Any]) -> list[str]:
    """Return the operators of one optimizer step."""
    actor = Actor(
        tiny_model,
        model=Model(use_remove_padding=packed),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm.model_validate({"rolloutCorrection": {}, **algorithm}),
        training=Training(total_steps=1, ppo_micro_batch_size_per_device=ROWS // micro_batches),
        temperature=0.7,
        max_response_length=8,
    )
    responses = [list(range(50, 51 + row % 3)) for row in range(ROWS)]
    sequences = Sequences.pad([[60] * (1 + row % 2) for row in range(ROWS)], responses, pad_token_id=0)
    zeros = torch.zeros(sequences.responses.shape)
    experience = Experience(
        sequences,
        zeros,
        zeros + 1,
        ref_log_probs=zeros,
        weights=zeros,
        own_pass=torch.ones(ROWS, dtype=torch.bool),
        rollout_log_probs=zeros - 5,
    )
    batch = MiniBatch(experience, int(sequences.response_mask.sum()), ROWS, tuple(range(ROWS)))
    found = Synchronizations()
    with found:
        actor.update(batch)
    return found.names


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "algorithm",
    [{}, {"klLossCoef": 0.1, "entropyCoeff": 0.1}, {"policyLoss": "dppo_kl"}],
    ids=str,
)
def test_a_micro_batch_waits_for_the_device_at_most_three_times(
    tiny_model: str, packed: bool, algorithm: dict[str, Any]
) -> None:
    few = count(tiny_model, packed=packed, micro_batches=2, algorithm=algorithm)
    many = count(tiny_model, packed=packed, micro_batches=4, algorithm=algorithm)
    assert few, "the mode counts nothing"
    assert len(many) - len(few) <= 2 * MAX_IN_A_MICRO_BATCH, many
