"""Training on one device: configs, a train worker without Ray, and steps of bench/train_step.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import train_step
from torch.distributed import HashStore  # type: ignore[attr-defined]

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"


def build_config(device: str, run: Path, files: str, **blocks: dict[str, Any]) -> TrainingConfig:
    """Build the config of one train worker in bfloat16 with the model in the folder `files`. `blocks` add fields."""
    document: dict[str, Any] = {
        "job": "gpu-check",
        "namespace": "default",
        "runDirectory": str(run),
        "workers": 1,
        "devicesPerWorker": int(device == "cuda"),
        "cpusPerWorker": 2,
        "model": {
            "path": files,
            "dtype": "bfloat16",
            "useRemovePadding": True,
            "enableGradientCheckpointing": True,
        },
        "data": {"preset": "arithmetic", "maxPromptLength": 32, "maxResponseLength": 32},
        "rewards": [{"name": "regex", "options": {"pattern": "[a-z]"}}],
        "algorithm": {"klLossCoef": 0},
        "training": {"totalSteps": 5, "trainBatchSize": 8, "ppoMiniBatchSize": 8, "learningRate": 1e-6},
        "rollout": {"engine": "vllm", "responsesPerPrompt": 8},
        "checkpoint": {},
        "observability": {},
    }
    for name, fields in blocks.items():
        document[name] = {**document.get(name, {}), **fields}
    return TrainingConfig.model_validate(document)


@contextmanager
def train_worker(config: TrainingConfig) -> Iterator[TrainWorker]:
    """A train worker of this process, alone in its process group, with its models."""
    worker = TrainWorker(config, 0, 1, address=LOOPBACK)
    worker.connect(worker.rendezvous())
    worker.load_models()
    worker.start_stage(config.training.learning_rate)
    worker.begin_step(1)
    try:
        yield worker
    finally:
        worker.close()


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """This process alone in a process group, as measure_step and build_training_step need it."""
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=0, world_size=1, store=HashStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def measure_step(words: Sequence[str], device: str) -> dict[str, Any]:
    """Return the result of bench/train_step.py with these arguments. What the run leaves is released, so that the next
    run has its own peak memory on a GPU. On a CPU, the peak of the whole process is returned."""
    try:
        return train_step.measure(train_step.parse_arguments(words), device, 1)
    finally:
        torch._dynamo.reset()
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def build_sequences(*, rows: int, length: int) -> Sequences:
    """Build responses of random bytes, the same on each call."""
    tokens = torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(0)).tolist()
    return Sequences.pad([row[:4] for row in tokens], [row[4:] for row in tokens], pad_token_id=0)
