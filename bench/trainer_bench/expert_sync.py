"""A weight sync of a model with many small experts to vLLM: almost all of its time is Python's."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench_report import Row
from in_process import Pair, build_pair_config
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.prompt import Prompt

EXPERTS = 128
LAYERS = 8
ROUNDS = 16
MAX_MS = 0.03
PROBES = [Prompt(number, tuple(range(50 + number, 60 + number)), "", "", "", "") for number in range(8)]


def measure() -> Row:
    """Measure verified syncs and others in turns, with all their calls of train worker and engine."""
    with tempfile.TemporaryDirectory() as folder:
        weights = write_model(Path(folder, "model"))
        config = build_pair_config(
            Path(folder, "run"),
            model={"path": f"{folder}/model", "dtype": "bfloat16"},
            data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 5},
            training={"totalSteps": 1, "ppoMiniBatchSize": 128},
            rollout={"engine": "vllm", "maxNumSeqs": 8, "verifyWeightsFreq": 2},
        )
        pair = Pair(config, PROBES)
        times = [measure_sync(pair) for _ in range(2 * ROUNDS + 2)][2:]  # the first ones find the places of weights
        pair.close()
    verified, plain = (1e3 * statistics.median(times[first::2]) / weights for first in range(2))
    return Row(
        f"weight sync of {EXPERTS} small experts in each of {LAYERS} layers, for each weight of the files",
        f"at most {MAX_MS} ms",
        f"{plain:.3f} ms, and verified {verified:.3f} ms ({weights:,} weights)",
        plain <= MAX_MS,
        {"seconds": times},
    )


def measure_sync(pair: Pair) -> float:
    """Return the seconds of a sync."""
    start = time.perf_counter()
    pair.version += 1
    pair.engines.sync_weights(pair.version)
    return time.perf_counter() - start


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
        num_experts=EXPERTS,
        num_experts_per_tok=8,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3MoeForCausalLM(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    stacked = 2 * LAYERS  # gate and up are one stack
    return len(list(model.parameters())) - stacked + 3 * EXPERTS * LAYERS


if __name__ == "__main__":
    print(measure().measured)
