"""Measure tokens per second, MFU and memory of one policy optimizer step: forward, PPO loss, backward, AdamW.

Uses random weights, packed sequences and FSDP2, on one device or with torchrun on several. Needs only torch and
transformers. `python bench/train_step.py` measures the shape of Qwen3-0.6B on 16,384 tokens. Such a step is 60 TFLOP:
seconds on CUDA, 15 minutes and about 16 GiB on two CPU cores. `--tokens 1024 --layers 2` or `--config tiny` is faster.
Progress goes to standard error. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from transformers import Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "trainer"))  # if the trainer is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "api"))  # for --lora and --liger
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "pod"))

from rlt_trainer.algorithms.aggregation import aggregate
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy import packed_attention
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.sharding import find_layers, shard
from rlt_trainer.telemetry.flops import count_training_flops, find_shape
from rlt_trainer.telemetry.peak_flops import find_peak_flops

QWEN3 = {"vocab_size": 151_936, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    return {**QWEN3, **sizes, "num_attention_heads": heads}


CONFIGS: dict[str, tuple[dict[str, Any], int, int]] = {
    "qwen3-0.6b": (_qwen3(1024, 3072, 28, 16), 16_384, 1024),
    "qwen3-1.7b": (_qwen3(2048, 6144, 28, 16), 16_384, 1024),
    "qwen3-4b": (_qwen3(2560, 9728, 36, 32), 16_384, 1024),
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
"""Shape, tokens per step and device, tokens per sequence. Shapes of Qwen3 are from config.json of Qwen/Qwen3-*."""


def main() -> None:
    """Measure, and print the results."""
    arguments = parse_arguments()
    device_type = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    rank = int(os.environ.get("RANK", "0"))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store = HashStore() if ranks == 1 else None  # with several ranks, torchrun sets the rendezvous
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo", rank=rank, world_size=ranks, store=store)
    result = measure(arguments, device_type, ranks)
    if rank == 0:
        for name, value in result.items():
            print(f"{name:>24}  {'unknown: the peak of this device is not listed' if value is None else value}")
        print(json.dumps(result))
    dist.destroy_process_group()


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line, or `words`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=CONFIGS, default="qwen3-0.6b")
    parser.add_argument("--tokens", type=int, help="tokens per step and device")
    parser.add_argument("--sequence", type=int, help="tokens per sequence, a quarter of them in the prompt")
    parser.add_argument("--layers", type=int, help="number of layers. Default: the config's")
    parser.add_argument(
        "--micro-batches",
        type=int,
        help="per step. Default: 1, on a CPU one per sequence to save memory",
    )
    parser.add_argument("--steps", type=int, default=5, help="steps to measure, after two warmup steps")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--liger", action="store_true", help="use Liger's kernels. Requires liger-kernel and rlt_api")
    parser.add_argument("--lora", type=int, metavar="RANK", help="train adapters alone. Requires peft and rlt_api")
    return parser.parse_args(words)


def measure(arguments: argparse.Namespace, device_type: str, ranks: int) -> dict[str, Any]:
    """Return the results by name. Tokens, throughput and memory are per device."""
    sizes, tokens, length = CONFIGS[arguments.config]
    tokens = arguments.tokens or tokens
    length = arguments.sequence or length
    config = Qwen3Config(**sizes | ({"num_hidden_layers": arguments.layers} if arguments.layers else {}))
    arguments.micro_batches = arguments.micro_batches or (1 if device_type == "cuda" else max(1, tokens // length))
    rows = max(1, tokens // length // arguments.micro_batches)
    dtype = torch.bfloat16 if device_type == "cuda" else torch.float32
    step = build_training_step(config, arguments, device_type, ranks, rows=rows, length=length, dtype=dtype)

    seconds = []
    for number in range(2 + arguments.steps):
        start = time.perf_counter()
        step()
        if device_type == "cuda":
            torch.cuda.synchronize()
        duration = time.perf_counter() - start
        print(f"step {number + 1} of {2 + arguments.steps}: {duration:.2f} s", file=sys.stderr, flush=True)
        if number >= 2:
            seconds.append(duration)
    median = statistics.median(seconds)
    shape = find_shape(config)
    lengths = [length] * rows * arguments.micro_batches
    assert shape is not None, "the FLOPs of Qwen3 are known"
    flops = count_training_flops(shape, lengths, logits=sum(lengths) * 3 // 4, lora=arguments.lora is not None)
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
        "micro_batches": arguments.micro_batches,
        "seconds_per_step": round(median, 4),
        "tokens_per_second": round(sum(lengths) / median, 1),
        "tflops_per_second": float(f"{flops / median / 1e12:.3g}"),
        "mfu": None if peak is None else round(flops / median / peak, 4),
        "peak_memory_gib": round(peak_memory(device_type) / 2**30, 3),
        "reserved_memory_gib": round(torch.cuda.max_memory_reserved() / 2**30, 3) if device_type == "cuda" else None,
        "gradient_checkpointing": arguments.gradient_checkpointing,
        "compiled": arguments.compile,
        "liger": arguments.liger,
        "lora": arguments.lora,
    }


def build_training_step(
    config: Qwen3Config,
    arguments: argparse.Namespace,
    device_type: str,
    ranks: int,
    *,
    rows: int,
    length: int,
    dtype: torch.dtype,
) -> Callable[[], None]:
    """Build the function of one optimizer step on packed micro-batches of `rows` sequences, like the policy's."""
    torch.manual_seed(0)
    config._attn_implementation = packed_attention.NAME
    with torch.device(device_type):
        model = Qwen3ForCausalLM(config).eval()  # type: ignore[no-untyped-call]
        if arguments.liger:
            from rlt_trainer.policy.liger import apply_liger

            apply_liger(model)
        if arguments.lora is not None:
            add_adapters(model, arguments.lora, dtype)
    mesh = init_device_mesh(device_type, (ranks,))
    layers = find_layers(model)
    shard(
        model,
        layers,
        [],
        response_log_probs,
        mesh=mesh,
        dtype=dtype,
        gradient_checkpointing=arguments.gradient_checkpointing,
        compiled=layers if arguments.compile else [],
    )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True)
    prompt = length // 4
    ids = torch.randint(config.vocab_size, (rows, length)).tolist()
    sequences = Sequences.pad([row[:prompt] for row in ids], [row[prompt:] for row in ids], pad_token_id=0)
    sequences = sequences.to(torch.device(device_type))
    advantages = torch.randn(rows, 1, device=device_type).expand(rows, length - prompt)
    total = rows * (length - prompt) * arguments.micro_batches

    def step() -> None:
        for _ in range(arguments.micro_batches):
            log_probs, _ = model(sequences, temperature=1.0, packed=True)
            inputs = LossInputs(log_probs, log_probs.detach(), advantages, sequences.response_mask)
            loss = POLICY_LOSSES["vanilla"](inputs).loss
            share = aggregate(loss, inputs.mask, "token-mean", total_tokens=total, total_sequences=rows)
            share.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def add_adapters(model: Qwen3ForCausalLM, rank: int, dtype: torch.dtype) -> None:
    """Add adapters to all linear layers. The frozen weights below them are in `dtype`, as the policy's."""
    from rlt_api.blocks.model import Lora
    from rlt_trainer.policy import lora  # imports peft

    lora.add_adapters(model, Lora(rank=rank))
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def peak_memory(device_type: str) -> int:
    """Return the peak memory in bytes: of torch on the GPU, or of the process on a CPU."""
    if device_type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
