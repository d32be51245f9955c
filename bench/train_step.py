"""Tokens per second, share of the device's peak and memory of one optimizer step of the policy: forward, PPO's loss,
backward, AdamW. Random weights, packed sequences, FSDP2 on one device or, under torchrun, on several.

Needs torch and transformers alone: `python bench/train_step.py` measures Qwen3-0.6B's shape on 16,384 tokens. A step of
that is 60 TFLOP: seconds on CUDA, a quarter of an hour and about 16 GiB on two cores of a CPU. `--tokens 1024
--layers 2` or `--config tiny` is a short try. How far it is goes to standard error; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from transformers import Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "trainer"))  # where the trainer is not installed

from rlt_trainer.algorithms.aggregation import aggregate
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy import packed_attention
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.sharding import find_layers, shard
from rlt_trainer.telemetry.flops import count_training_flops, find_shape
from rlt_trainer.telemetry.peak_flops import find_peak_flops

CONFIGS: dict[str, tuple[dict[str, Any], int, int]] = {
    "qwen3-0.6b": (
        {
            "vocab_size": 151_936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
        16_384,
        1024,
    ),
    "tiny": (
        {
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
        },
        256,
        64,
    ),
}
"""Shape, tokens in a step of one device, tokens in a sequence. The first is that of Qwen/Qwen3-0.6B's config.json."""


def main() -> None:
    """Measure and print."""
    arguments = parse()
    device_type = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store = HashStore() if ranks == 1 else None  # alone there is nobody to meet; else torchrun says where
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo", rank=rank, world_size=ranks, store=store)
    result = measure(arguments, device_type, ranks)
    if rank == 0:
        for name, value in result.items():
            print(f"{name:>24}  {'unknown: no data sheet of this device here' if value is None else value}")
        print(json.dumps(result))
    dist.destroy_process_group()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=CONFIGS, default="qwen3-0.6b")
    parser.add_argument("--tokens", type=int, help="in one step of one device")
    parser.add_argument("--sequence", type=int, help="tokens in a sequence, a quarter of them the prompt")
    parser.add_argument("--layers", type=int, help="instead of the model's own number")
    parser.add_argument(
        "--passes", type=int, help="that they are cut into; default: 1, on a CPU one for each sequence, to save memory"
    )
    parser.add_argument("--steps", type=int, default=5, help="measured, after two that are not")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def measure(arguments: argparse.Namespace, device_type: str, ranks: int) -> dict[str, Any]:
    """The figures, by name. Tokens, throughput and memory are those of one device."""
    sizes, tokens, length = CONFIGS[arguments.config]
    tokens, length = arguments.tokens or tokens, arguments.sequence or length
    config = Qwen3Config(**sizes | ({"num_hidden_layers": arguments.layers} if arguments.layers else {}))
    arguments.passes = arguments.passes or (1 if device_type == "cuda" else max(1, tokens // length))
    rows = max(1, tokens // length // arguments.passes)
    dtype = torch.bfloat16 if device_type == "cuda" else torch.float32
    step = training_step(config, arguments, device_type, ranks, rows=rows, length=length, dtype=dtype)

    seconds = []
    for number in range(2 + arguments.steps):
        start = time.perf_counter()
        step()
        if device_type == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        print(f"step {number + 1} of {2 + arguments.steps}: {took:.2f} s", file=sys.stderr, flush=True)
        if number >= 2:
            seconds.append(took)
    median = statistics.median(seconds)
    shape, lengths = find_shape(config), [length] * rows * arguments.passes
    assert shape is not None, "Qwen3 is known"
    flops = count_training_flops(shape, lengths, logits=sum(lengths) * 3 // 4)
    name = torch.cuda.get_device_name() if device_type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    peak = find_peak_flops(name)
    return {
        "config": arguments.config,
        "device": name,
        "devices": ranks,
        "dtype": str(dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "layers": config.num_hidden_layers,
        "tokens_per_step": sum(lengths),
        "sequence_length": length,
        "passes": arguments.passes,
        "seconds_per_step": round(median, 4),
        "tokens_per_second": round(sum(lengths) / median, 1),
        "tflops_per_second": float(f"{flops / median / 1e12:.3g}"),
        "mfu": None if peak is None else round(flops / median / peak, 4),
        "peak_memory_gib": round(peak_memory(device_type) / 2**30, 3),
        "gradient_checkpointing": arguments.gradient_checkpointing,
        "compiled": arguments.compile,
    }


def training_step(
    config: Qwen3Config,
    arguments: argparse.Namespace,
    device_type: str,
    ranks: int,
    *,
    rows: int,
    length: int,
    dtype: torch.dtype,
) -> Callable[[], None]:
    """One optimizer step on `passes` packed passes of `rows` sequences, as the policy makes it."""
    torch.manual_seed(0)
    config._attn_implementation = packed_attention.NAME
    with torch.device(device_type):
        model = Qwen3ForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    mesh = init_device_mesh(device_type, (ranks,))
    shard(
        model,
        find_layers(model),
        response_log_probs,
        mesh=mesh,
        dtype=dtype,
        gradient_checkpointing=arguments.gradient_checkpointing,
        compiled=arguments.compile,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    prompt = length // 4
    ids = torch.randint(config.vocab_size, (rows, length)).tolist()
    sequences = Sequences.pad([row[:prompt] for row in ids], [row[prompt:] for row in ids], pad_token_id=0)
    sequences = sequences.to(torch.device(device_type))
    advantages = torch.randn(rows, 1, device=device_type).expand(rows, length - prompt)
    total = rows * (length - prompt) * arguments.passes

    def step() -> None:
        for _ in range(arguments.passes):
            log_probs, _ = model(sequences, temperature=1.0, packed=True)
            inputs = LossInputs(log_probs, log_probs.detach(), advantages, sequences.response_mask)
            loss = POLICY_LOSSES["vanilla"](inputs).loss
            share = aggregate(loss, inputs.mask, "token-mean", total_tokens=total, total_sequences=rows)
            share.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def peak_memory(device_type: str) -> int:
    """Bytes that torch held on the GPU, or the process in all."""
    if device_type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
