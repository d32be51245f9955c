"""Tokens per second, MFU and memory of one optimizer step, by bench/train_step.py."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from importlib.util import find_spec

from gpu_check.figures import Figure
from gpu_check.runs import measure_step, process_group
from gpu_check.settings import Settings

CHECKPOINTING = ("--gradient-checkpointing",)
LORA = ("--lora", "16")
EAGER = "0.6B, 1 x 16,384, checkpointing"
COMPILED = f"{EAGER}, compiled"
LIGER = f"{EAGER}, Liger"
PRIME_RL = "prime-rl 559b4477, benchmarks/baselines, one H100, recompute, FlashAttention 3"
RUNS: tuple[tuple[str, Sequence[str], str], ...] = (
    (
        EAGER,
        ("--config", "qwen3-0.6b", "--sequence", "16384", *CHECKPOINTING),
        f"{PRIME_RL}: 11,896 tokens/s, MFU 11.1 %, 12.5 GiB",
    ),
    (
        "4B with LoRA, 1 x 16,384, checkpointing",
        ("--config", "qwen3-4b", "--sequence", "16384", *CHECKPOINTING, *LORA),
        f"{PRIME_RL}: 6,229 tokens/s, MFU 21.7 %",
    ),
    ("0.6B, 16 x 1,024, checkpointing", CHECKPOINTING, ""),
    ("0.6B, 16 x 1,024", (), ""),
    ("0.6B, 1 x 16,384", ("--sequence", "16384"), ""),
    (COMPILED, ("--sequence", "16384", *CHECKPOINTING, "--compile"), ""),
    ("0.6B, 16 x 1,024, compiled", ("--compile",), ""),
    (LIGER, ("--sequence", "16384", *CHECKPOINTING, "--liger"), ""),
)
"""Name, arguments, and another project's figures for the same shape. The first runs are worth the most, and compilation
takes the longest. Liger is last, because it replaces classes of transformers."""


def run(settings: Settings) -> Iterator[Figure]:
    """Measure one run after the other in this process, and compare compilation and Liger with neither. A rehearsal has
    the tiny shape in place of each."""
    rates: dict[str, float] = {}
    with process_group(settings.device):
        for name, arguments, note in RUNS:
            if name == LIGER and (settings.rehearse or find_spec("liger_kernel") is None):
                yield Figure(f"{name}: not run", "its kernels need CUDA, and the package liger-kernel")
                continue
            rates[name] = yield from measure(settings, name, arguments, note)
    for name in (COMPILED, LIGER):
        if name in rates:
            yield Figure(f"{name}: throughput, relative to the same eager step", rates[name] / rates[EAGER], "x")


def measure(settings: Settings, name: str, arguments: Sequence[str], note: str) -> Generator[Figure, None, float]:
    """Measure one run. Return its tokens per second."""
    words = [*arguments, "--steps", settings.choose("3", "1")]
    if settings.rehearse:
        words += ["--config", "tiny", "--tokens", "256", "--sequence", "128"]
        name = f"tiny, in place of {name}"
        note = ""
    result = measure_step(words, settings.device)
    rate = float(result["tokens_per_second"])
    yield Figure(f"{name}: throughput", rate, "tokens/s", note=note)
    if result["mfu"] is not None:
        yield Figure(f"{name}: MFU", 100 * result["mfu"], "%")
    yield Figure(f"{name}: peak memory", result["peak_memory_gib"], "GiB")
    return rate
