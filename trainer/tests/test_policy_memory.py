"""The peak memory of a training step grows with its tokens, not with tokens times vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import run_ranks

VOCABULARY = 150_000
SHORT = 32
LONG = 512


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
    from peak_bytes import PeakBytes
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from rlt_api.blocks.algorithm import Algorithm
    from rlt_api.blocks.model import Model
    from rlt_api.blocks.training import Training
    from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
    from rlt_trainer.policy import log_probs
    from rlt_trainer.policy.actor import Actor

    torch.set_num_threads(1)
    log_probs.CHUNK_ELEMENTS = 2**22
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
    )
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
        counted = PeakBytes()
        with counted:
            actor.update(MiniBatch(Experience(sequences, zeros, zeros + 1), tokens, 1))
        return counted.peak

    step(SHORT)  # creates the optimizer state
    short = step(SHORT)
    in_chunks = step(LONG)
    log_probs.CHUNK_ELEMENTS = LONG * VOCABULARY
    return in_chunks - short, step(LONG) - short
