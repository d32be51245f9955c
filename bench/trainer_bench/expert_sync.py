"""A weight sync of a model with many small experts to vLLM: almost all of its time is Python's."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench_report import Row
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from trainer_bench.configs import build_config
from trainer_bench.local_run import run_local

EXPERTS = 128
LAYERS = 8
STEPS = 16
FIRST = 4
"""The first step that counts. Each second sync is verified."""
MAX_MS = 0.03


def measure() -> Row:
    """Measure the syncs of a run, which include the calls of the driver."""
    with tempfile.TemporaryDirectory() as folder:
        weights = write_model(Path(folder, "model"))
        config = build_config(
            folder,
            model={"fromSeed": None, "path": f"{folder}/model"},
            data={"maxResponseLength": 4},
            training={"totalSteps": STEPS, "trainBatchSize": 2, "ppoMiniBatchSize": 2},
            rollout={"engine": "vllm", "responsesPerPrompt": 2, "verifyWeightsFreq": 2},
        )
        steps = run_local(config)[FIRST - 1 :]
    verified, plain = (
        [
            1e3 * step["timing_s/update_weights"] / weights
            for step in steps
            if ("training/weight_sync_difference" in step) == is_verified
        ]
        for is_verified in (True, False)
    )
    milliseconds = statistics.median(plain)
    return Row(
        f"weight sync of {EXPERTS} small experts in each of {LAYERS} layers, for each weight of the files",
        f"at most {MAX_MS} ms",
        f"{milliseconds:.3f} ms, and verified {statistics.median(verified):.3f} ms ({weights:,} weights)",
        milliseconds <= MAX_MS,
        {"plain": plain, "verified": verified},
    )


def write_model(folder: Path) -> int:
    """Write the model with random weights, and return the number of weights in its files."""
    tokenizer = build_byte_tokenizer()
    config = Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        num_experts=EXPERTS,
        num_experts_per_tok=8,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3MoeForCausalLM(config)
    model.save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)
    stacked = 2 * LAYERS  # gate and up are one stack
    return len(list(model.parameters())) - stacked + 3 * EXPERTS * LAYERS


if __name__ == "__main__":
    print(measure().measured)
