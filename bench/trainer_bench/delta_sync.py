"""The bytes of a weight sync to an engine in another pod on CPUs, by learning rate."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
from bench_report import Row
from in_process import Pair, build_pair_config
from torch import Tensor

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rollout.group_channel import GroupChannel

RATES = {1e-6: 0.05, 3e-4: 1.01}
"""Learning rate -> maximum share of all bytes."""
SYNCS = 10
SIZES = {"hiddenSize": 256, "intermediateSize": 512, "numHiddenLayers": 2, "numAttentionHeads": 4}
PROBES = [Prompt(number, tuple(range(50 + number, 60 + number)), "", "", "", "") for number in range(8)]


def measure() -> Row:
    """Train in bfloat16 with AdamW on new random tokens in each step."""
    shares = {rate: measure_shares(rate) for rate in RATES}
    largest = {rate: max(each) for rate, each in shares.items()}
    return Row(
        "bytes of a weight sync between pods on CPUs, of all bytes, bfloat16, learning rates 1e-6 and 3e-4",
        f"at most {RATES[1e-6]:.0%} and {RATES[3e-4]:.0%}",
        ", ".join(f"{statistics.median(each):.1%} (largest {max(each):.1%})" for each in shares.values())
        + f" of {SYNCS} syncs",
        all(largest[rate] <= maximum for rate, maximum in RATES.items()),
        {f"{rate:g}": each for rate, each in shares.items()},
    )


def measure_shares(rate: float) -> list[float]:
    """Return the bytes of the syncs after the first one, as shares of its weights' bytes."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_pair_config(
            Path(folder),
            model={"fromSeed": {"seed": 1, **SIZES}, "dtype": "bfloat16"},
            data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 5},
            training={"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": rate},
            rollout={"engine": "transformers", "mode": "separate", "workerGroup": "rollout"},
            rolloutWorkers=1,
        )
        pair = Pair(config, PROBES)
        pair.sync()
        sizes = count_bytes(pair)
        whole = sum(tensor.nbytes for _, tensor in pair.rank._actor.gather_weights())
        shares = []
        generator = torch.Generator().manual_seed(0)
        for _ in range(SYNCS):
            tokens = torch.randint(0, 256, (8, 64), generator=generator).tolist()
            pair.rank.supervised_step(
                Sequences.pad([each[:1] for each in tokens], [each[1:] for each in tokens], pad_token_id=0), 8 * 63
            )
            sizes.clear()
            pair.sync()
            shares.append(sum(sizes) / whole)
        pair.close()
    return shares


def count_bytes(pair: Pair) -> list[int]:
    """Return the list to which each message of the sender adds its bytes, also the headers."""
    channel = pair.rank._channel
    assert isinstance(channel, GroupChannel)
    sizes: list[int] = []
    broadcast = channel._broadcast

    def count(tensor: Tensor) -> None:
        sizes.append(tensor.nbytes)
        broadcast(tensor)

    channel._broadcast = count  # type: ignore[method-assign] # counts, and sends
    return sizes


if __name__ == "__main__":
    print(measure().measured)
