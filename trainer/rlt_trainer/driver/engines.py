"""The rollout engines of a run: prompts are distributed to them, and the policy's weights are synced to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import chain, pairwise
from queue import SimpleQueue
from typing import Any, Concatenate, Protocol, TypeVar

from ray import ObjectRef

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import rollout_pods
from rlt_trainer.cluster.worker_group import WorkerGroup, results, submit
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.telemetry.worker_telemetry import WorkerReport
from rlt_trainer.workers.engine_worker import EngineWorker
from rlt_trainer.workers.rollout_worker import RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

CHUNKS_PER_ENGINE = 4
"""Separate engines: number of chunks per engine into which a batch is cut. An idle engine takes the next chunk."""

R = TypeVar("R")


class RolloutEngines(Protocol):
    """All rollout engines."""

    def start(self, probes: Sequence[Prompt]) -> None:
        """Start the engines. Each weight sync is verified on `probes`."""
        ...

    def map(
        self, method: Callable[Concatenate[EngineWorker, ...], list[R]], *columns: Sequence[Any]
    ) -> Future[list[R]]:
        """Call a method that takes lists and returns a list, with one element for each row. Keep the row order."""
        ...

    def sync_weights(self) -> float:
        """Sync the policy's weights to all engines, and verify them.

        Returns the largest of the engines' mean differences of log-probabilities. Raises StaleWeightsError.
        """
        ...

    def sleep(self) -> None:
        """Free the engines' memory until the next weight sync (rollout.freeCacheEngine)."""
        ...

    def end_step(self, step: int) -> list[WorkerReport]:
        """Return the reports of the rollout workers on `step`. Train workers are not among them."""
        ...

    def close(self) -> None:
        """Stop the engines."""
        ...


def build_engines(config: TrainingConfig, workers: WorkerGroup[TrainWorker]) -> RolloutEngines:
    """Build the engines of rollout.mode."""
    return ColocatedEngines(config, workers) if config.rollout.mode == "colocated" else SeparateEngines(config, workers)


class ColocatedEngines:
    """An engine in each train worker. Training and generation alternate, so each call returns when it is complete."""

    def __init__(self, config: TrainingConfig, workers: WorkerGroup[TrainWorker]) -> None:
        self._workers = workers
        self._sleeps = config.rollout.free_cache_engine

    def start(self, probes: Sequence[Prompt]) -> None:
        """See RolloutEngines."""
        self._workers.all(TrainWorker.start_engine, probes)
        self._workers.all(TrainWorker.watch_connections, self._workers.all(TrainWorker.node_address))

    def map(
        self, method: Callable[Concatenate[EngineWorker, ...], list[R]], *columns: Sequence[Any]
    ) -> Future[list[R]]:
        """See RolloutEngines."""
        chunks = split_evenly(len(columns[0]), len(self._workers))
        shares = [[column[chunk] for chunk in chunks] for column in columns]
        future: Future[list[R]] = Future()
        future.set_result(list(chain.from_iterable(self._workers.each(method, *shares))))
        return future

    def sync_weights(self) -> float:
        """See RolloutEngines."""
        return max(self._workers.all(TrainWorker.sync_weights))

    def sleep(self) -> None:
        """See RolloutEngines."""
        if self._sleeps:
            self._workers.all(TrainWorker.sleep_engine)

    def end_step(self, step: int) -> list[WorkerReport]:
        """See RolloutEngines."""
        return []

    def close(self) -> None:
        """See RolloutEngines. The train workers close their engines."""


class SeparateEngines:
    """Rollout workers, which generate while the train workers train.

    Chunks of a batch wait in one queue, from which an idle engine takes the next. The chunks of a later call follow.
    """

    def __init__(self, config: TrainingConfig, workers: WorkerGroup[TrainWorker]) -> None:
        self._train_workers = workers
        self._workers = WorkerGroup(
            RolloutWorker,
            config,
            rollout_pods(config),
            concurrency=3,  # generate, receive_weights and close at the same time
        )
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for actor in self._workers.actors:
            self._idle.put(actor)
        # One thread for each engine: chunks without an idle engine wait in the executor's queue.
        self._callers = ThreadPoolExecutor(len(self._workers), thread_name_prefix="engine")
        self._gatherers = ThreadPoolExecutor(thread_name_prefix="gather")

    def start(self, probes: Sequence[Prompt]) -> None:
        """See RolloutEngines. Rank 0 of the train workers becomes the sender of the weights."""
        train, rollout = self._train_workers, self._workers
        results([*rollout.submit(RolloutWorker.start_engine, probes), *train.submit(TrainWorker.set_probes, probes)])
        rendezvous, size = train.first(TrainWorker.rendezvous), 1 + len(rollout)
        results(
            [
                *train.submit(TrainWorker.open_channel, rendezvous, size),
                *rollout.submit(RolloutWorker.open_channel, rendezvous, size),
            ]
        )
        addresses = [*train.all(TrainWorker.node_address), *rollout.all(RolloutWorker.node_address)]
        train.all(TrainWorker.watch_connections, addresses)
        rollout.all(RolloutWorker.watch_connections, addresses)

    def map(
        self, method: Callable[Concatenate[EngineWorker, ...], list[R]], *columns: Sequence[Any]
    ) -> Future[list[R]]:
        """See RolloutEngines."""
        futures = [
            self._callers.submit(self._call, method, [column[chunk] for column in columns])
            for chunk in split_evenly(len(columns[0]), CHUNKS_PER_ENGINE * len(self._workers))
            if chunk.start < chunk.stop
        ]
        return self._gatherers.submit(_gather, futures)

    def sync_weights(self) -> float:
        """See RolloutEngines. Responses in progress are interrupted, and continue with the new weights."""
        expected = self._train_workers.all(TrainWorker.probe_log_probs)[0]
        received = self._workers.submit(RolloutWorker.receive_weights, expected)
        sent = self._train_workers.submit(TrainWorker.send_weights)
        references: list[ObjectRef[Any]] = [*received, *sent]
        differences: list[float] = results(references)[: len(received)]
        return max(differences)

    def sleep(self) -> None:
        """See RolloutEngines. No other process uses the memory of separate engines."""

    def end_step(self, step: int) -> list[WorkerReport]:
        """See RolloutEngines."""
        return self._workers.all(RolloutWorker.end_step, step)

    def close(self) -> None:
        """See RolloutEngines. Chunks that still wait are discarded."""
        self._callers.shutdown(wait=False, cancel_futures=True)
        self._gatherers.shutdown(wait=False, cancel_futures=True)
        self._workers.all(RolloutWorker.close)

    def _call(self, method: Callable[..., list[R]], columns: Sequence[Any]) -> list[R]:
        engine = self._idle.get()
        try:
            return results([submit(engine, method, *columns)])[0]
        finally:
            self._idle.put(engine)


def split_evenly(rows: int, chunks: int) -> list[slice]:
    """Split `rows` rows into contiguous slices whose sizes differ by at most 1. Some are empty if rows < chunks."""
    bounds = [rows * chunk // chunks for chunk in range(chunks + 1)]
    return [slice(start, end) for start, end in pairwise(bounds)]


def _gather(futures: Sequence[Future[list[R]]]) -> list[R]:
    """Return the rows of all chunks in order. Raise the first error when it happens."""
    for future in as_completed(futures):
        future.result()
    return list(chain.from_iterable(future.result() for future in futures))
