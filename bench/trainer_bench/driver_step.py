"""The driver's part of a step, with train workers that answer at once in another thread.

The driver's real functions run. What goes to another process is pickled as by Ray: protocol 5, with large buffers that
the reader does not copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from ray import cloudpickle

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.batches.sequences import Experience
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import build_experience
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker
from trainer_bench.configs import build_config
from trainer_bench.interleaved import Times, compare

GROUP = 8
PROMPT_TOKENS = 128
MINI_BATCHES = 4
ROUNDS = 5


def measure_driver(lengths: Sequence[int], ranks: int) -> Times:
    """Return the CPU seconds of the driver's thread, to move the tokens and for the whole step.

    A step receives the responses, gets log-probabilities from the ranks, computes advantages and metrics, and sends the
    arguments of the update. The algorithm is GRPO with a KL term. There are GROUP responses to a prompt.
    """
    torch.set_num_threads(1)
    prompts = len(lengths) // GROUP
    training = {
        "trainBatchSize": prompts,
        "ppoMiniBatchSize": prompts // MINI_BATCHES,
        "ppoEpochs": 2,  # so that all rows have a pass for old log-probabilities
    }
    data = {"maxPromptLength": PROMPT_TOKENS, "maxResponseLength": max(lengths)}
    algorithm = {"klLossCoef": 0.001}
    config = build_config(
        "/nowhere",
        data=data,
        training=training,
        algorithm=algorithm,
        rollout={"responsesPerPrompt": GROUP},
        workers=ranks,
    )
    sent = [Crossing.send(each) for each in draw_responses(lengths, engines=ranks)]
    rows = [
        Prompt(index, tuple(range(PROMPT_TOKENS)), "", "", "", "") for index in range(prompts) for _ in range(GROUP)
    ]
    score = torch.rand(len(rows))
    scores = Scores(score, {"exact": score}, score.isnan(), {})

    def receive() -> RolloutBatch:
        responses = [response for each in sent for response in each.receive()]
        return RolloutBatch(rows, responses, [""] * len(rows), scores, torch.zeros(len(rows)))

    def update(experience: Experience) -> None:
        data_parallel.update(TrainWorker.update_actor, experience, rows=len(rows) // MINI_BATCHES, epochs=1)

    def run_step() -> None:
        stopwatch = Stopwatch()
        update(
            build_experience(
                config,
                receive(),
                data_parallel=data_parallel,
                kl_controller=None,
                pad_token_id=0,
                stopwatch=stopwatch,
            ).experience
        )

    def move_tokens() -> None:
        sequences, _ = receive().pad(0)
        old, entropy = data_parallel.compute(TrainWorker.log_probs, sequences)
        (reference,) = data_parallel.compute(TrainWorker.ref_log_probs, sequences)
        update(Experience(sequences, old, entropy, ref_log_probs=reference))

    with ThreadPoolExecutor(1) as thread:
        data_parallel = DataParallel(Ranks(thread, ranks), context_parallel_size=1)
        return compare(move_tokens, run_step, rounds=ROUNDS, clock=time.thread_time)


def draw_responses(lengths: Sequence[int], *, engines: int) -> list[list[Response]]:
    """Draw responses of these lengths. Return them by engine."""
    generator = np.random.default_rng(0)
    responses = [
        Response(generator.integers(1000, 150_000, length).tolist(), (-generator.random(length)).tolist())
        for length in lengths
    ]
    size = -(-len(responses) // engines)
    return [responses[start : start + size] for start in range(0, len(responses), size)]


class Ranks:
    """Train workers, whose answers another thread makes."""

    def __init__(self, thread: ThreadPoolExecutor, count: int) -> None:
        self._thread = thread
        self._count = count

    def __len__(self) -> int:
        return self._count

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
