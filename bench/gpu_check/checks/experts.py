"""A layer of 128 experts: bfloat16 and grouped_mm against float32, and the time of a weight sync for each tensor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import torch

from gpu_check.figures import Figure
from gpu_check.models import build_mixture_config, write_model
from gpu_check.runs import build_config, build_sequences, train_worker
from gpu_check.settings import Settings
from rlt_trainer.policy.weight_files import to_file_format
from rlt_trainer.rollout.buckets import BUCKET_BYTES, Bucket, pack_buckets
from rlt_trainer.rollout.expert_stacks import iterate_experts
from rlt_trainer.workers.train_worker import TrainWorker

MAX_DIFFERENCE = 0.05
"""Mean difference between log-probabilities of about 7 nats: the warning of a weight sync in bfloat16."""
PEERS = "slime: 7 s for the sync of Qwen3-30B-A3B (18,867 tensors); verl: 4.4 s"


def run(settings: Settings) -> Iterator[Figure]:
    """Compare log-probabilities, take one step, and pack all weights into buckets."""
    experts, width, layers = settings.choose((128, 512, 4), (8, 64, 2))
    model = write_model(
        build_mixture_config(experts=experts, width=width, layers=layers), settings.folder / "model", settings.device
    )
    sequences = build_sequences(rows=settings.choose(8, 2), length=settings.choose(512, 16))
    mask = sequences.response_mask
    found = {}
    for dtype in ("float32", "bfloat16"):
        config = build_config(settings.device, settings.folder / dtype, model, model={"dtype": dtype})
        with train_worker(config) as worker:
            found[dtype] = worker._actor.log_probs(sequences)[0][mask]
            if dtype == "float32":
                continue
            result = worker.supervised_step(sequences, int(mask.sum()))
            yield Figure(
                f"{experts} experts: gradient norm of a step",
                result.grad_norm,
                passed=not result.skipped and result.grad_norm > 0,
            )
            yield from measure_sync(worker, settings)
    difference = float((found["float32"] - found["bfloat16"]).abs().mean())
    yield Figure(
        f"{experts} experts: mean difference of log-probabilities, bfloat16 against float32",
        difference,
        "nats",
        passed=difference < MAX_DIFFERENCE,
        note=f"at most {MAX_DIFFERENCE}",
    )


def measure_sync(worker: TrainWorker, settings: Settings) -> Iterator[Figure]:
    """Measure gathering, conversion and packing of all weights, without an engine."""
    actor = worker._actor
    device = torch.device(settings.device)
    allocate = partial(torch.empty, dtype=torch.uint8, device=device)

    def pack() -> Iterator[Bucket]:
        return pack_buckets(to_file_format(actor.model, actor.gather_weights()), allocate, limit=BUCKET_BYTES)

    tensors = sum(1 for bucket in pack() for _ in iterate_experts(bucket.unpack()))  # this round allocates
    start = time.perf_counter()
    size = sum(len(bucket.data) for bucket in pack())
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    yield Figure("a sync's tensors", tensors, passed=tensors > 0)
    yield Figure("a sync's bytes", size / 1e9, "GB")
    yield Figure("gather, convert and pack, for each tensor", 1e3 * seconds / tensors, "ms", note=PEERS)
