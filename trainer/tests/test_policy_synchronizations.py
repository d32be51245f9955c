"""A pass waits for its device a bounded number of times: operations whose result the host must read are counted.

Those in the code of transformers are not: its vision towers read the sizes of images, and its experts on CPUs select by
masks, where accelerators use grouped products.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import join, run_ranks
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM
from vision_model import draw_square, write_vision_model

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.critic import Critic

pytestmark = pytest.mark.usefixtures("process_group")
aten = torch.ops.aten
Call = Callable[[Any, MiniBatch], None]
"""A method of an actor or a critic."""
SYNCHRONIZING = {
    *(aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default),
    *(aten._unique2.default, aten.repeat_interleave.Tensor, aten.is_nonzero.default),
}
"""Operators that return a value to the host, or a tensor whose size depends on values."""
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""Operators that find the positions of a boolean index first."""
MAX_IN_A_MICRO_BATCH = 3
ROWS = 8
IMAGE = [262, 264, 263]
"""Tokens of vision_model.py: the start of an image, its one part, and its end."""


class Synchronizations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts them, as if all tensors were on a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_boolean = func in INDEXING and any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in args[1] if each is not None
        )
        if (func in SYNCHRONIZING or is_boolean) and find_caller() != "transformers":
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def find_caller() -> str:
    """Return the package of the code that called torch."""
    frame = inspect.currentframe()
    packages = []
    while frame is not None:
        packages.append(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    return next(package for package in packages if package not in (__name__.partition(".")[0], "torch"))


def count(
    files: str,
    call: Call,
    *,
    packed: bool,
    micro_batches: int,
    algorithm: dict[str, Any],
    has_images: bool = False,
    context_parallel_size: int = 1,
) -> list[str]:
    """Return the operators of `call`, which gets an actor or, with algorithm.critic, a critic."""
    settings = {"useRemovePadding": packed}
    options: dict[str, Any] = {
        "model": Model.model_validate(settings),
        "dtype": torch.float32,
        "mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
        "algorithm": Algorithm.model_validate(
            {"rolloutCorrection": {}, **algorithm, **({"critic": settings} if "critic" in algorithm else {})}
        ),
        "training": Training(
            total_steps=1,
            ppo_micro_batch_size_per_device=ROWS // micro_batches,
            context_parallel_size=context_parallel_size,
        ),
        "max_response_length": 8,
    }
    processor = ImageProcessor(files, AutoConfig.from_pretrained(files)) if has_images else None
    trained = (
        Critic(files, **options)
        if "critic" in algorithm
        else Actor(files, temperature=0.7, processor=processor, **options)
    )
    responses = [list(range(50, 51 + row % 3)) for row in range(ROWS)]
    prompts = [[*IMAGE * has_images, *[60] * (1 + row % 2)] for row in range(ROWS)]
    images = [(draw_square("red", size=8),)] * ROWS if has_images else None
    sequences = Sequences.pad(prompts, responses, pad_token_id=0, images=images)
    zeros = torch.zeros(sequences.responses.shape)
    has_top = "lossMode" in algorithm.get("distillation", {})
    experience = Experience(
        sequences,
        zeros,
        zeros + 1,
        ref_log_probs=zeros,
        teacher_log_probs=zeros[..., None] if has_top else zeros,
        teacher_ids=sequences.responses[..., None] if has_top else None,
        weights=zeros,
        values=zeros,
        returns=zeros,
        own_pass=torch.ones(ROWS, dtype=torch.bool),
        rollout_log_probs=zeros - 5,
        selected=zeros == 0,
    )
    batch = MiniBatch(experience, int(sequences.response_mask.sum()), ROWS, tuple(range(ROWS)))
    found = Synchronizations()
    with found:
        call(trained, batch)
    return found.names


def update(trained: Any, batch: MiniBatch) -> None:
    trained.update(batch)


def log_probs(trained: Any, batch: MiniBatch) -> None:
    trained.log_probs(batch.experience.sequences)


def supervised_step(trained: Any, batch: MiniBatch) -> None:
    trained.supervised_step(batch.experience.sequences, batch.total_tokens)


def values(trained: Any, batch: MiniBatch) -> None:
    trained.values(batch.experience.sequences)


CRITIC: dict[str, Any] = {"advEstimator": "gae", "critic": {}}
CALLS: list[tuple[Call, dict[str, Any]]] = [
    (update, {}),
    (update, {"klLossCoef": 0.1, "entropyCoeff": 0.1}),
    (update, {"policyLoss": "dppo_kl"}),
    (update, {"policyLoss": "clip_cov"}),
    (update, {"policyLoss": "kl_cov"}),
    (update, {"distillation": {"modelPath": "/teacher"}}),
    (update, {"distillation": {"modelPath": "/teacher", "lossMode": "forward_kl_topk"}}),
    (update, CRITIC),
    (log_probs, {}),
    (supervised_step, {}),
    (values, CRITIC),
]


def check(files: str, call: Call, algorithm: dict[str, Any], **settings: Any) -> None:
    """Compare two micro-batches with four."""
    few, many = (count(files, call, micro_batches=number, algorithm=algorithm, **settings) for number in (2, 4))
    assert len(many) - len(few) <= 2 * MAX_IN_A_MICRO_BATCH, many


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("call", "algorithm"), CALLS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_micro_batch_waits_for_the_device_at_most_three_times(
    tiny_model: str, call: Call, algorithm: dict[str, Any], packed: bool
) -> None:
    check(tiny_model, call, algorithm, packed=packed)


@pytest.mark.parametrize("packed", [False, True])
def test_router_loss(tmp_path: Path, packed: bool) -> None:
    sizes = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    experts = {"num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2}
    AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.for_model("qwen3_moe", **sizes, **heads, **experts)
    ).save_pretrained(tmp_path)
    check(str(tmp_path), update, {"routerAuxLossCoef": 0.1}, packed=packed)


@pytest.mark.parametrize("packed", [False, True])
def test_images(tmp_path: Path, packed: bool) -> None:
    check(str(write_vision_model(tmp_path)), update, {}, packed=packed, has_images=True)


@pytest.mark.slow
def test_context_parallelism(tiny_model: str) -> None:
    run_ranks(check_rank, [(tiny_model, rank) for rank in range(2)])


def check_rank(files: str, rank: int) -> None:
    join(rank, 2)
    check(files, update, {}, packed=True, context_parallel_size=2)
    dist.destroy_process_group()


def test_values_that_the_host_reads_are_counted() -> None:
    numbers = torch.arange(4.0)
    found = Synchronizations()
    with found:
        numbers[numbers > 1].sum().item()
        numbers.nonzero()
        numbers[torch.tensor([0, 1])].exp()
    assert len(found.names) == 3, found.names
