"""A weight sync of a model with 128 experts in each layer to vLLM.

With small experts almost all of its time is Python's, with large ones it is the copies'.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_report import Row
from in_process import Pair, build_pair_config
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.prompt import Prompt
from trainer_bench.interleaved import compare

EXPERTS = 128
ROUNDS = 16
MAX_MS = 0.03
MAX_RATIO = 2.0
SMALL: dict[str, Any] = {"hidden_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 8}
LARGE: dict[str, Any] = {"hidden_size": 1024, "moe_intermediate_size": 256, "num_hidden_layers": 2}
PROBES = [Prompt(number, tuple(range(50 + number, 60 + number)), "", "", "", "") for number in range(8)]


def measure() -> Row:
    """Measure verified syncs and others in turns, with all their calls of train worker and engine."""
    with tempfile.TemporaryDirectory() as folder:
        weights = count_weights(write_model(Path(folder, "model"), SMALL))
        pair = open_pair(folder, verify_weights_freq=2)
        times = [measure_sync(pair) for _ in range(2 * ROUNDS + 2)][2:]  # the first ones find the places of weights
        pair.close()
    verified, plain = (1e3 * statistics.median(times[first::2]) / weights for first in range(2))
    return Row(
        f"weight sync of {EXPERTS} small experts in each of {SMALL['num_hidden_layers']} layers, for each weight of "
        "the files",
        f"at most {MAX_MS} ms",
        f"{plain:.3f} ms, and verified {verified:.3f} ms ({weights:,} weights)",
        plain <= MAX_MS,
        {"seconds": times},
    )


def measure_bytes() -> Row:
    """Measure syncs and copies of the same bytes into memory in use, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        weights = list(write_model(Path(folder, "model"), LARGE).parameters())
        copies = [weight.detach().clone() for weight in weights]
        pair = open_pair(folder, verify_weights_freq=0)
        measure_sync(pair)

        def copy() -> None:
            for weight, memory in zip(weights, copies, strict=True):
                memory.copy_(weight.detach())

        times = compare(lambda: measure_sync(pair), copy, rounds=ROUNDS)
        pair.close()
    size = sum(weight.nbytes for weight in weights)
    return Row(
        f"weight sync of {EXPERTS} experts of {LARGE['hidden_size']} x {LARGE['moe_intermediate_size']} in each of "
        f"{LARGE['num_hidden_layers']} layers, against a copy of the same bytes",
        f"at most {MAX_RATIO:g} x",
        f"{times} for {size / 2**20:.0f} MiB",
        times.ratio <= MAX_RATIO,
        {"bytes": size, **vars(times)},
    )


def open_pair(folder: str, *, verify_weights_freq: int) -> Pair:
    """Open a train worker and vLLM with the model in `folder`."""
    return Pair(
        build_pair_config(
            Path(folder, "run"),
            model={"path": f"{folder}/model", "dtype": "bfloat16"},
            data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 5},
            training={"totalSteps": 1, "ppoMiniBatchSize": 128},
            rollout={"engine": "vllm", "maxNumSeqs": 8, "verifyWeightsFreq": verify_weights_freq},
        ),
        PROBES,
    )


def measure_sync(pair: Pair) -> float:
    """Return the seconds of a sync."""
    start = time.perf_counter()
    pair.version += 1
    pair.engines.sync_weights(pair.version)
    return time.perf_counter() - start


def write_model(folder: Path, shape: dict[str, Any]) -> Qwen3MoeForCausalLM:
    """Write a model with random weights, and return it."""
    tokenizer = build_byte_tokenizer()
    config = Qwen3MoeConfig(
        vocab_size=512,
        intermediate_size=64,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_experts=EXPERTS,
        num_experts_per_tok=8,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    model = Qwen3MoeForCausalLM(config)  # type: ignore[no-untyped-call]
    model.bfloat16()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def count_weights(model: Qwen3MoeForCausalLM) -> int:
    """Count the weights in the model's files, where the matrices of each expert are separate."""
    layers = model.config.num_hidden_layers
    stacked = 2 * layers  # gate and up are one stack
    return len(list(model.parameters())) - stacked + 3 * EXPERTS * layers


if __name__ == "__main__":
    print(measure().measured, measure_bytes().measured, sep="\n")
