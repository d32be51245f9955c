"""1,000,000 response tokens through the driver: from the engines' responses to the arguments of the update.

The driver's real functions run, with train workers that answer at once in another thread. What goes to another process
is pickled as by Ray: protocol 5, with large buffers that the reader does not copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from bench_report import Row
from ray import cloudpickle

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import build_experience
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

TOKENS = 1_000_000
PROMPTS, GROUP, PROMPT_TOKENS = 128, 8, 128
RANKS, MINI_BATCHES = 8, 4
MAX_S = 0.1
REPEATS = 5

CONFIG = {
    "job": "bench",
    "namespace": "default",
    "runDirectory": "/nowhere",
    "workers": RANKS,
    "devicesPerWorker": 0,
    "cpusPerWorker": 1,
    "model": {"path": "/nowhere"},
    "data": {"preset": "arithmetic", "maxPromptLength": PROMPT_TOKENS, "maxResponseLength": 8192},
    "rewards": [{"name": "exact"}],
    "algorithm": {},
    "training": {"totalSteps": 1, "trainBatchSize": PROMPTS, "ppoMiniBatchSize": PROMPTS // MINI_BATCHES},
    "rollout": {"n": GROUP},
    "checkpoint": {},
    "observability": {},
}


def measure() -> Row:
    """Measure the CPU time of the driver's thread with the default algorithm, GRPO with a KL term."""
    torch.set_num_threads(1)
    config = TrainingConfig.model_validate(CONFIG)
    sent = [Crossing.send(each) for each in draw_responses()]
    seconds = [run_driver(config, sent) for _ in range(REPEATS + 1)][1:]  # the first one loads the code
    best = min(seconds)
    return Row(
        "1 M response tokens through the driver",
        f"under {MAX_S} s of CPU",
        f"{best:.3f} s ({PROMPTS * GROUP:,} responses of lognormal lengths, {RANKS} ranks)",
        best < MAX_S,
        {"seconds": seconds},
    )


def draw_responses() -> list[list[Response]]:
    """Draw responses of lognormal lengths, by engine."""
    generator = np.random.default_rng(0)
    weights = generator.lognormal(0.0, 0.5, PROMPTS * GROUP)
    responses = [
        Response(tuple(generator.integers(1000, 150_000, length).tolist()), tuple((-generator.random(length)).tolist()))
        for length in np.maximum(1, weights / weights.sum() * TOKENS).astype(int)
    ]
    return [responses[engine::RANKS] for engine in range(RANKS)]


def run_driver(config: TrainingConfig, sent: Sequence[Crossing]) -> float:
    """Run the driver's part of a step. Return the seconds of CPU of its thread."""
    prompts = [
        Prompt(index, tuple(range(PROMPT_TOKENS)), "", "", "", "") for index in range(PROMPTS) for _ in range(GROUP)
    ]
    score = torch.rand(len(prompts))
    scores = Scores(score, {"exact": score}, score.isnan(), {})
    with ThreadPoolExecutor(1) as thread:
        ranks = DataParallel(Ranks(thread), context_parallel_size=1)
        start = time.thread_time()
        by_engine = [each.receive() for each in sent]
        responses = [response for row in zip(*by_engine, strict=True) for response in row]
        batch = RolloutBatch(prompts, responses, [""] * len(prompts), scores, torch.zeros(len(prompts)))
        training = build_experience(
            config, batch, data_parallel=ranks, kl_controller=None, pad_token_id=0, stopwatch=Stopwatch()
        )
        rows = len(prompts) // MINI_BATCHES
        ranks.update(TrainWorker.update_actor, training.experience, rows=rows, epochs=1)
        return time.thread_time() - start


class Ranks:
    """Train workers, whose answers another thread makes."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread

    def __len__(self) -> int:
        return RANKS

    def each(self, method: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Send the arguments of each rank, and receive its answer."""
        sent = [Crossing.send(arguments) for arguments in zip(*columns, strict=True)]
        return [each.receive() for each in self._thread.submit(answer, method, sent).result()]


def answer(method: Callable[..., Any], sent: Sequence[Crossing]) -> list[Crossing]:
    """Return the result of each rank: no optimizer step, or the same log-probability of every token."""
    if method is TrainWorker.update_actor:
        return [Crossing.send([]) for _ in sent]
    results = []
    for each in sent:
        (sequences,) = each.receive()
        log_probs = np.full(sum(sequences.response_lengths()), -2.0, dtype=np.float32)
        results.append(Crossing.send((log_probs, -log_probs) if method is TrainWorker.log_probs else (log_probs,)))
    return results


class Crossing:
    """A value on its way to another process."""

    def __init__(self, stream: bytes, buffers: Sequence[bytes]) -> None:
        self._stream = stream
        self._buffers = buffers

    @classmethod
    def send(cls, value: object) -> Crossing:
        """Serialize, and copy the buffers as into Ray's object store."""
        buffers: list[Any] = []
        stream = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)  # type: ignore[no-untyped-call]
        return cls(stream, [bytes(each.raw()) for each in buffers])

    def receive(self) -> Any:
        """Deserialize. The buffers are not copied."""
        return cloudpickle.loads(self._stream, buffers=self._buffers)


if __name__ == "__main__":
    print(measure())
