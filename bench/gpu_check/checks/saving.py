"""An asynchronous save beside a step, and a train worker that resumes from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from gpu_check.figures import Figure
from gpu_check.models import build_shape, write_model
from gpu_check.runs import build_config, build_sequences, train_worker
from gpu_check.settings import Settings
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.workers.train_worker import TrainWorker


def run(settings: Settings) -> Iterator[Figure]:
    """Save between two steps, and compare the weights that another worker loads with those that were saved."""
    shape = build_shape(settings.choose("0.6B", "tiny"), **settings.choose({"num_hidden_layers": 8}, {}))
    model = write_model(shape, settings.folder / "model", settings.device)
    config = build_config(settings.device, settings.folder / "run", model, checkpoint={"asynchronous": True})
    sequences = build_sequences(rows=settings.choose(16, 2), length=settings.choose(512, 16))
    with train_worker(config) as worker:
        steps = [_step(worker, sequences) for _ in range(4)]
        saved = _copy_weights(worker)
        start = time.perf_counter()
        outcomes = worker.save(1, DriverState(), None)
        yield Figure("stall of a save", time.perf_counter() - start, "s", note=f"a step takes {steps[-1]:.3f} s")
        beside = _step(worker, sequences)
        yield Figure("a step beside the save", beside, "s", note=f"alone {steps[-1]:.3f} s")
        outcomes = [*outcomes, *worker.finished_saves(wait=True)]
        errors = [outcome.error for outcome in outcomes if outcome.error]
        ended = len(outcomes) == 1 and not errors
        yield Figure("saves that ended", len(outcomes), passed=ended, note="; ".join(errors))
        moved = any(not torch.equal(saved[name], each) for name, each in _copy_weights(worker).items())
        yield Figure("the step beside the save changed the weights", str(moved), passed=moved)
    with train_worker(config) as worker:
        resumed = worker.resume(settings.folder / "run/checkpoints")
        loaded = _copy_weights(worker)
        equal = resumed is not None and all(torch.equal(saved[name], each) for name, each in loaded.items())
        yield Figure("weights equal after a resume", str(equal), passed=equal, note=_describe(resumed))
        _step(worker, sequences)
        yield Figure("a step after the resume", "done", passed=True)


def _step(worker: TrainWorker, sequences: Sequences) -> float:
    start = time.perf_counter()
    worker.supervised_step(sequences, int(sequences.response_mask.sum()))  # its result waits for the device
    return time.perf_counter() - start


def _copy_weights(worker: TrainWorker) -> dict[str, torch.Tensor]:
    return {name: each.detach().to("cpu", copy=True) for name, each in worker._actor.gather_weights()}


def _describe(resumed: Any) -> str:
    return "no checkpoint was found" if resumed is None else f"from {asdict(resumed)['directory']}"
