"""What an asynchronous checkpoint adds to the steps: the copy to host memory, and a slower step beside the writing."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import torch
from bench_report import Row

from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.workers.train_worker import TrainWorker
from trainer_bench.configs import LOOPBACK, build_config

ROWS = 128
PROMPT_TOKENS = 32
RESPONSE_TOKENS = 96
PAIRS = 6
MAX_SHARE = 0.05


def measure() -> Row:
    """Measure a save on a disk."""
    return measure_stall("checkpoint")


def measure_stall(what: str, **changes: Any) -> Row:
    """Compare the step after a save with the step after that. `changes`: blocks of the config."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_config(folder, checkpoint={"asynchronous": True}, **changes)
        worker = TrainWorker(config, 0, 1, address=LOOPBACK)
        worker.connect(worker.rendezvous())
        worker.load_models()
        worker.start_stage(1e-4)
        batch = build_batch()
        saves = []
        beside = []
        alone = []
        for step in range(1, PAIRS + 2):
            saves.append(measure_save(worker, step))
            beside.append(measure_step(worker, batch))
            worker.finished_saves(wait=True)
            alone.append(measure_step(worker, batch))
        worker.close()
    save, slower, step_s = (
        statistics.median(each[1:])  # the first step loads kernels, the first save allocates memory
        for each in (saves, [one - other for one, other in zip(beside, alone, strict=True)], alone)
    )
    share = (save + max(0.0, slower)) / step_s
    return Row(
        f"{what}: stall per save, asynchronous, as share of a step without generation",
        f"under {MAX_SHARE:.0%}",
        f"{share:.1%} ({save * 1000:.0f} ms for the copy, {slower * 1000:+.0f} ms in the next step of {step_s:.2f} s)",
        share < MAX_SHARE,
        {"save": saves, "step_beside": beside, "step": alone},
    )


def build_batch() -> MiniBatch:
    """Build a mini-batch of random tokens."""
    torch.manual_seed(0)
    tokens = torch.randint(256, (ROWS, PROMPT_TOKENS + RESPONSE_TOKENS)).tolist()
    sequences = Sequences.pad(
        [row[:PROMPT_TOKENS] for row in tokens], [row[PROMPT_TOKENS:] for row in tokens], pad_token_id=0
    )
    shape = (ROWS, RESPONSE_TOKENS)
    experience = Experience(
        sequences, torch.full(shape, -5.0), torch.randn(shape), ref_log_probs=torch.full(shape, -5.0)
    )
    return MiniBatch(experience, ROWS * RESPONSE_TOKENS, ROWS)


def measure_save(worker: TrainWorker, step: int) -> float:
    """Return the seconds until the training continues."""
    start = time.perf_counter()
    worker.save(step, DriverState(), None)
    return time.perf_counter() - start


def measure_step(worker: TrainWorker, batch: MiniBatch) -> float:
    """Return the seconds of the log-probabilities and the update."""
    start = time.perf_counter()
    worker.log_probs(batch.experience.sequences)
    worker.update_actor([batch])
    return time.perf_counter() - start


if __name__ == "__main__":
    print(measure())
