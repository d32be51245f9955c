"""All engines of a run, wherever they are: rows go to them, responses and new weights come and go."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import chain, pairwise
from queue import SimpleQueue
from typing import Any, Protocol

from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.worker_group import TrainWorkers, WorkerGroup, results, rollout_pods
from rlt_trainer.telemetry.worker_telemetry import WorkerReport

CHUNKS_PER_ENGINE = 4
"""In separate mode each engine takes its share of the rows in about so many pieces: whoever is idle takes the next."""


class RolloutEngines(Protocol):
    """The engines."""

    engines: int
    """How many there are."""

    def start(self, probes: Sequence[Prompt]) -> None:
        """Start them. `probes` are what their weights are verified on."""
        ...

    def map(self, method: str, *columns: Sequence[Any]) -> Future[list[Any]]:
        """Call a method that takes lists and returns a list, one element a row, on all rows. The rows' order stays."""
        ...

    def sync_weights(self) -> float:
        """Give them the policy's weights, verified: the largest of their mean differences of log-probabilities.

        Raises StaleWeightsError.
        """
        ...

    def sleep(self) -> None:
        """Give memory back until the next sync (rollout.freeCacheEngine)."""
        ...

    def end_step(self, step: int) -> list[WorkerReport]:
        """What those of them did during `step` that are no ranks of the training."""
        ...

    def close(self) -> None:
        """End them."""
        ...


def rollout_engines(config: TrainingConfig, workers: TrainWorkers) -> RolloutEngines:
    """The engines of rollout.mode."""
    return ColocatedEngines(config, workers) if config.rollout.mode == "colocated" else SeparateEngines(config, workers)


class ColocatedEngines:
    """An engine on every rank: they train and generate in turns, so a call has ended when it returns."""

    def __init__(self, config: TrainingConfig, workers: TrainWorkers) -> None:
        self.engines = workers.ranks
        self._workers = workers
        self._sleeps = config.rollout.free_cache_engine

    def start(self, probes: Sequence[Prompt]) -> None:
        """As in RolloutGroup."""
        self._workers.all("start_engine", probes)

    def map(self, method: str, *columns: Sequence[Any]) -> Future[list[Any]]:
        """As in RolloutGroup."""
        parts = pieces(len(columns[0]), self.engines)
        shares = [[column[part] for part in parts] for column in columns]
        future: Future[list[Any]] = Future()
        future.set_result(list(chain.from_iterable(self._workers.each(method, *shares))))
        return future

    def sync_weights(self) -> float:
        """As in RolloutGroup."""
        differences: list[float] = self._workers.all("sync_weights")
        return max(differences)

    def sleep(self) -> None:
        """As in RolloutGroup."""
        if self._sleeps:
            self._workers.all("sleep_engine")

    def end_step(self, step: int) -> list[WorkerReport]:
        """As in RolloutGroup."""
        return []

    def close(self) -> None:
        """As in RolloutGroup: they end with their ranks."""


class SeparateEngines:
    """Engines in a worker group of their own, which generate while the ranks train.

    Rows wait in one queue, from which an idle engine takes the next piece; a second call's rows follow the first's.
    """

    def __init__(self, config: TrainingConfig, workers: TrainWorkers) -> None:
        self._workers = workers
        self._processes = WorkerGroup(config, rollout_pods(config), concurrency=3)  # generate, receive_weights, close
        self.engines = len(self._processes)
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for actor in self._processes.actors:
            self._idle.put(actor)
        # One thread for each engine: what waits for an idle engine waits in their queue.
        self._callers = ThreadPoolExecutor(self.engines, thread_name_prefix="engine")
        self._gatherers = ThreadPoolExecutor(thread_name_prefix="gather")

    def start(self, probes: Sequence[Prompt]) -> None:
        """As in RolloutGroup; the ranks keep the probes too, and rank 0 becomes the sender of the weights."""
        results([*self._processes.submit("start_engine", probes), *self._workers.submit("keep_probe", probes)])
        meeting, size = self._workers.first("rendezvous"), 1 + self.engines
        places = enumerate(self._processes.actors, 1)
        joined = [actor.call.remote("open_channel", meeting, place, size) for place, actor in places]
        results([*self._workers.submit("open_channel", meeting, size), *joined])

    def map(self, method: str, *columns: Sequence[Any]) -> Future[list[Any]]:
        """As in RolloutGroup."""
        chunks = [
            self._callers.submit(self._call, method, [column[part] for column in columns])
            for part in pieces(len(columns[0]), CHUNKS_PER_ENGINE * self.engines)
            if part.start < part.stop
        ]
        return self._gatherers.submit(_gathered, chunks)

    def sync_weights(self) -> float:
        """As in RolloutGroup. What is being generated is interrupted, and goes on with the new weights."""
        expected = self._workers.all("probe_log_probs")[0]
        received = self._processes.submit("receive_weights", expected)
        sent = self._workers.submit("send_weights")
        differences: list[float] = results([*received, *sent])[: self.engines]
        return max(differences)

    def sleep(self) -> None:
        """As in RolloutGroup: nobody else wants their memory."""

    def end_step(self, step: int) -> list[WorkerReport]:
        """As in RolloutGroup."""
        return self._processes.all("end_step", step)

    def close(self) -> None:
        """As in RolloutGroup. Rows that are still waiting are given up."""
        self._callers.shutdown(wait=False, cancel_futures=True)
        self._gatherers.shutdown(wait=False, cancel_futures=True)
        self._processes.all("close")

    def _call(self, method: str, columns: Sequence[Any]) -> list[Any]:
        engine = self._idle.get()
        try:
            rows: list[Any] = results([engine.call.remote(method, *columns)])[0]
            return rows
        finally:
            self._idle.put(engine)


def pieces(rows: int, parts: int) -> list[slice]:
    """`rows` rows in `parts` contiguous slices whose sizes differ by one at most. Some are empty if rows are few."""
    bounds = [rows * part // parts for part in range(parts + 1)]
    return [slice(start, end) for start, end in pairwise(bounds)]


def _gathered(chunks: Sequence[Future[list[Any]]]) -> list[Any]:
    """The rows of all chunks in order; the first error as soon as it happens."""
    for chunk in as_completed(chunks):
        chunk.result()
    return list(chain.from_iterable(chunk.result() for chunk in chunks))
