"""Compare log-probabilities in chunks with those of full logits: time and peak memory of forward and backward.

The ratios compare measurements of one run. `python bench/log_probs.py` measures a vocabulary of 150,000 on the
available device. Needs only torch and transformers. The output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peak_bytes import PeakBytes
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "trainer"))  # if the trainer is not installed

from rlt_trainer.policy.log_probs import LogitScale, token_log_probs

LogProbs = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps hidden states [N, H], weights [V, H] and targets [N] to log-probabilities and entropies [N]."""


def in_chunks(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The trainer's function."""
    return token_log_probs(hidden, weight, None, targets, LogitScale())


def from_full_logits(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch's own operations, with autograd."""
    log_p = torch.nn.functional.linear(hidden, weight).float().log_softmax(-1)
    return log_p.gather(-1, targets[:, None]).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


KINDS: tuple[LogProbs, LogProbs] = (in_chunks, from_full_logits)


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, help="Default: 32,768 on CUDA, 1,024 on a CPU")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=150_000)
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each, in turn, after one warm-up")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    tokens = arguments.tokens or (32_768 if on_gpu else 1024)
    print(json.dumps(measure(tokens, arguments.hidden, arguments.vocabulary, arguments.device, arguments.repeats)))


def measure(tokens: int, hidden_size: int, vocabulary: int, device: str, repeats: int) -> dict[str, Any]:
    """Return the ratios of chunks to full logits. The time is the ratio of the medians."""
    run = build_step(tokens, hidden_size, vocabulary, device)
    peaks = measure_peaks(run)
    seconds: dict[LogProbs, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(repeats):
        for kind, times in seconds.items():
            start = time.perf_counter()
            run(kind)
            times.append(time.perf_counter() - start)
    medians = [statistics.median(times) for times in seconds.values()]
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads",
        "tokens": tokens,
        "hidden": hidden_size,
        "vocabulary": vocabulary,
        "peak_ratio": round(peaks[0] / peaks[1], 3),
        "time_ratio": round(medians[0] / medians[1], 3),
        "seconds": [round(each, 3) for each in medians],
        "peak_gib": [round(each / 2**30, 3) for each in peaks],
    }


def build_step(tokens: int, hidden_size: int, vocabulary: int, device: str) -> Callable[[LogProbs], None]:
    """Build the function of one forward and backward pass."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    hidden = torch.randn(tokens, hidden_size, device=device, dtype=dtype, requires_grad=True)
    weight = (torch.randn(vocabulary, hidden_size, device=device, dtype=dtype) / hidden_size**0.5).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), device=device)

    def run(log_probs: LogProbs) -> None:
        hidden.grad = weight.grad = None
        values, entropy = log_probs(hidden, weight, targets)
        (values.sum() + 0.01 * entropy.sum()).backward()  # type: ignore[no-untyped-call]
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def measure_peaks(run: Callable[[LogProbs], None]) -> list[int]:
    """Return the peak bytes of tensors of a step in chunks, and with full logits."""
    peaks = []
    for kind in KINDS:
        counted = PeakBytes()
        with counted:
            run(kind)
        peaks.append(counted.peak)
    return peaks


if __name__ == "__main__":
    main()
