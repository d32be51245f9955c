"""The peak memory of a training step grows with its tokens, not with tokens times vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

VOCABULARY, SHORT, LONG = 150_000, 32, 512


@pytest.mark.slow
def test_the_peak_does_not_grow_with_the_logits(tmp_path: Path) -> None:
    """With 16 times the tokens and a vocabulary of 150,000, the peak grows by a small part of the logits' size."""
    ((in_chunks, in_one),) = run_ranks(measure, [(tmp_path,)])
    assert in_one > (LONG - SHORT) * VOCABULARY * 4
    assert in_chunks < 0.05 * in_one


def measure(folder: Path) -> tuple[int, int]:
    """Return the bytes by which the peak with LONG tokens exceeds that with SHORT: in chunks, and in one chunk."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from rlt_api.blocks.algorithm import Algorithm
    from rlt_api.blocks.model import Model
    from rlt_api.blocks.training import Training
    from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
    from rlt_trainer.policy import log_probs
    from rlt_trainer.policy.actor import Actor

    class Peak(TorchDispatchMode):
        """Measures the peak bytes of the results of operations. Deterministic, only of this process."""

        def __init__(self) -> None:
            super().__init__()
            self.alive: dict[StorageWeakRef, int] = {}
            self.bytes = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DTensor):
                    storage = leaf.untyped_storage()
                    self.alive[StorageWeakRef(storage)] = storage.nbytes()
            self.alive = {storage: size for storage, size in self.alive.items() if not storage.expired()}
            self.bytes = max(self.bytes, sum(self.alive.values()))
            return result

    torch.set_num_threads(1)
    log_probs.CHUNK_ELEMENTS = 2**22
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = Qwen3Config(vocab_size=VOCABULARY, num_key_value_heads=1, head_dim=16, **sizes)
    Qwen3ForCausalLM(config).save_pretrained(folder / "model")  # type: ignore[no-untyped-call]
    actor = Actor(
        str(folder / "model"),
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm(kl_loss_coef=0, entropy_coeff=0.1),
        training=Training(total_steps=1),
        temperature=1.0,
        max_response_length=LONG,
    )

    def step(tokens: int) -> int:
        sequences = Sequences.pad([[1]], [[2] * tokens], pad_token_id=0)
        zeros = torch.zeros(1, tokens)
        with Peak() as peak:
            actor.update(MiniBatch(Experience(sequences, zeros, zeros + 1), tokens, 1))
        return peak.bytes

    step(SHORT)  # creates the optimizer state
    short, in_chunks = step(SHORT), step(LONG)
    log_probs.CHUNK_ELEMENTS = LONG * VOCABULARY
    return in_chunks - short, step(LONG) - short
