"""The rollout engines of a run: they sample responses, and the policy's weights are synced to them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from prometheus_client.core import Metric
from torch.distributed import DistError

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.engine_processes import EngineLostError, EngineProcess, EngineProcesses
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import Terminated, TrainingError
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rollout.build_engine import build_sampling
from rlt_trainer.rollout.engine import EngineError, Request, Sampling
from rlt_trainer.rollout.group_channel import end_meeting
from rlt_trainer.rollout.router import Engine, Router
from rlt_trainer.rollout.weight_channel import ChannelAddress, GroupAddress
from rlt_trainer.rollout.weight_sums import Sums, add_up_sums
from rlt_trainer.rollout.weight_sync import StaleWeightsError, Verification, build_probe, describe_damage
from rlt_trainer.telemetry.worker_telemetry import WorkerReport
from rlt_trainer.workers.rollout_worker import EngineInfo, RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

_log = logging.getLogger(__name__)

METRICS_TIMEOUT_S = 2.0
"""Prometheus waits 10 s for a scrape."""
CLOSE_TIMEOUT_S = 10.0
"""Time that engines have to stop after an error of the run. Later, Ray ends their processes."""
MAX_LOSSES = 3
"""How often the process of one engine may end in one step. Then the run ends: the next one would end as well."""
START_TIMEOUT_S = 1800
"""How long a run without any engine waits for one: for a new pod, and until its engine has loaded the model."""
POLL_INTERVAL_S = 1.0
"""How often a wait for engines looks for SIGTERM and for lost pods."""

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Engines:
    """All rollout engines, and the event loop that calls them.

    Colocated engines use the devices of the train workers, so they are paused while these train. An engine whose
    process ends is started again by `wait` or by the next weight sync: the train workers must send it the weights. In
    pods that only generate, it starts beside the others, which serve its requests, and joins them at the first weight
    sync after its start. Its pod may be lost as well, or not have joined Ray yet (minRolloutWorkers), or not exist
    until the job gets more pods (maxRolloutWorkers): Ray starts the process when KubeRay has created the pod.
    """

    sampling: Sampling
    """The sampling of training responses. Set by `start`."""
    router: Router
    """Samples responses, in the event loop. Set by `start`."""

    def __init__(
        self,
        config: TrainingConfig,
        workers: WorkerGroup[TrainWorker] | None,
        processes: EngineProcesses,
        termination: Termination | None = None,
    ) -> None:
        """Create it in the thread that calls the train workers. `workers`: None for LoadedEngines."""
        self._config = config
        self._train_workers = workers
        self._processes = processes
        self._termination = termination
        self._is_colocated = config.rollout.mode == "colocated"
        self._engines: list[_Engine] = []
        self._connected: list[_Engine] = []
        self._channels = 0
        self._has_lost: Future[None] = Future()
        self._losses: Counter[int] = Counter()
        self.syncs = 0
        """Number of weight syncs."""
        self._version = 0
        self._is_closed = False
        self._thread = threading.get_ident()
        self.loop = EventLoopThread("engines")

    @property
    def _workers(self) -> WorkerGroup[TrainWorker]:
        assert self._train_workers is not None
        return self._train_workers

    def start(self, probes: Sequence[Prompt]) -> None:
        """Start the engines. Each weight sync is verified on the tokens of `probes`."""
        # vLLM generates one token after those whose log-probabilities it returns.
        longest = self._config.data.max_prompt_length + self._config.data.max_response_length - 1
        self._probe = build_probe(probes, max(2, longest))
        self._start_processes()
        self._prepare_engines()

    def sync_weights(self, version: int) -> float | None:
        """Sync the policy's weights to all engines, and verify them. Requests continue with the new weights.

        version: of the weights: the number of the policy's optimizer steps.
        Returns the largest of the engines' mean differences of log-probabilities. None: this sync is not verified
        (rollout.verifyWeightsFreq). Raises StaleWeightsError, and Terminated after SIGTERM if no engine is left.
        """
        frequency = self._config.rollout.verify_weights_freq
        is_verified = frequency > 0 and self.syncs % frequency == 0
        self.syncs += 1
        self._version = version
        while True:
            self._restart_lost()
            with suppress(EngineLostError):  # then the next pass starts it again
                self._prepare_engines()
                return self._sync(is_verified=is_verified)

    def wait(self, future: Future[R]) -> R:
        """Wait for a result that depends on the engines. Meanwhile, start engines again whose processes end."""
        if threading.get_ident() != self._thread:
            return future.result()
        while True:
            pending: list[Future[Any]] = [future, self._has_lost]
            wait(pending, return_when=FIRST_COMPLETED)
            if future.done():
                return future.result()
            if self._is_colocated or not any(engine.serves and engine.loss is None for engine in self._engines):
                self.sync_weights(self._version)
            else:
                self._restart_lost()
                self._begin_starts()

    def pause(self) -> None:
        """Pause colocated engines, and free their memory (rollout.freeCacheEngine), until the next weight sync."""
        if self._is_colocated:
            self._call(self._connected, RolloutWorker.pause)

    def count_requests(self) -> dict[str, int]:
        """As in Router; empty before `start`. Any thread can call it."""
        return self.router.count_requests() if self._engines else {}

    def count_devices(self) -> int:
        """Count the devices of the engines that have the weights; 0 if colocated: they are the train workers'."""
        return 0 if self._is_colocated else len(self._connected) * self._config.rollout.tensor_parallel_size

    def read_metrics(self) -> dict[int, list[Metric]]:
        """Read the engines' own metrics, by the number of the engine. Any thread can call it.

        Engines that do not answer within METRICS_TIMEOUT_S are omitted, such as one that starts.
        """
        if not self._engines:
            return {}
        with suppress(TimeoutError, CancelledError):  # the event loop ends
            return self.loop.submit(self._read_metrics()).result(2 * METRICS_TIMEOUT_S)
        return {}

    def end_step(self, step: int) -> list[WorkerReport]:
        """Return the reports of the engines on `step`."""
        self._losses.clear()
        return list(self._call(self._connected, RolloutWorker.end_step, step).values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the engines after an error, which is raised even if they do not answer, or have ended."""
        if error is not None and not self._is_closed:
            with suppress(Exception):
                self.close(CLOSE_TIMEOUT_S)

    def close(self, timeout_s: float | None = None) -> None:
        """Stop the engines and the event loop. Raises TimeoutError if they do not stop in time."""
        self._is_closed = True
        engines = self._engines
        self._engines = []
        started = [engine for engine in engines if engine.info is not None]
        try:
            if engines:
                self.loop.submit(self.router.close()).result(timeout_s)
                self._collect(self.loop.submit(self._gather(started, RolloutWorker.close)), timeout_s)
        finally:
            self.loop.close(timeout_s)

    def _sync(self, *, is_verified: bool) -> float | None:
        """Send the weights to the connected engines, and verify them. Raises EngineLostError if one of them ends."""
        expected = self._workers.all(TrainWorker.probe_log_probs, self._probe)[0] if is_verified else []
        self._release_memory("weights")
        sent = self._transfer(add_up=is_verified)
        self._release_memory("kv_cache")  # after the receivers ended: memory that they have opened cannot be released
        held = self._call(self._connected, RolloutWorker.sum_weights) if is_verified else {}
        self._call(self._connected, RolloutWorker.resume)
        difference = self._verify(sent, held, expected) if is_verified else None
        self._raise_loss()
        self.loop.submit(self._serve()).result()
        return difference

    def _transfer(self, *, add_up: bool) -> Sums:
        """Send the weights to the connected engines. With `add_up`, return their sums.

        If they are damaged on their way, they are sent once more, over new channels: whole. Raises StaleWeightsError if
        they are damaged again.
        """
        sent, damage = self._send(add_up=add_up)
        if damage:
            _log.warning("sending all weights again: %s", damage)
            self._open_channels(self._connected)
            sent, damage = self._send(add_up=add_up)
        if damage:
            raise StaleWeightsError(damage)
        return add_up_sums(sent)

    def _send(self, *, add_up: bool) -> tuple[Sequence[Sums], str]:
        """Return the sums of each train worker, and what differs in the engines from what was sent: "" if nothing."""
        receiving = self._gather(self._connected, RolloutWorker.receive_weights)
        sent, received = self._beside(
            receiving, lambda: self._workers.all(TrainWorker.send_weights, self._version, add_up=add_up)
        )
        return sent, describe_damage(received.values(), self._version)

    def _verify(self, sent: Sums, held: Mapping[_Engine, Sums], expected: Sequence[float]) -> float:
        actual = self._call(self._connected, RolloutWorker.log_probs, self._probe)
        self._raise_loss()
        differences = []
        for engine in self._connected:
            assert engine.verification is not None
            found = engine.verification.verify(sent, held[engine], expected=expected, actual=actual[engine])
            differences.append(found)
        return max(differences)

    def _release_memory(self, before: str) -> None:
        """Release the memory that the train workers do not use, `before` colocated engines allocate it."""
        if self._is_colocated:
            self._workers.all(TrainWorker.release_memory, before)

    def _start_processes(self) -> None:
        self.loop.submit(self._start_router()).result()
        self._engines = [self._start_process(number) for number in range(len(self._processes))]

    def _start_process(self, number: int) -> _Engine:
        return _Engine(number, self._processes.start(number))

    def _prepare_engines(self) -> None:
        """Start the engines of new processes. They serve after the next weight sync. Raises EngineLostError."""
        self._begin_starts()
        self._await_starts()
        for engine in self._engines:
            if engine.info is None and engine.start is not None and engine.start.done():
                try:
                    engine.info = engine.start.result()
                    self.sampling = build_sampling(self._config, engine.info.stop_token_ids)
                except EngineLostError as error:
                    engine.loss = error
        self._raise_loss()
        started = [engine for engine in self._engines if engine.info is not None]
        if started != self._connected:
            self._open_channels(started)
            self._connected = started
        self._begin_verification([engine for engine in started if engine.verification is None])
        self._raise_loss()

    def _begin_verification(self, new: Sequence[_Engine]) -> None:
        """Sum the weights before the first sync of new engines."""
        for engine, held in self._call(new, RolloutWorker.sum_weights).items():
            engine.verification = Verification(held, self._config.rollout.quantization or self._config.model.dtype)

    def _begin_starts(self) -> None:
        """Begin to start the engines of new processes. `_prepare_engines` awaits them."""
        stopped = [engine for engine in self._engines if engine.start is None]
        if stopped:
            # vLLM starts only if gpuMemoryUtilization of the device is free (vllm/v1/worker/utils.py: request_memory).
            # It is, also beside moments: the sync needs the same memory (rlt_api/rules/memory.py).
            self._release_memory("start")
        for engine in stopped:
            engine.start = self.loop.submit(engine.process.call(RolloutWorker.start))

    def _await_starts(self) -> None:
        """Wait for the engines without which no request can be served: at first, all whose pods have joined Ray.

        Raises TrainingError after START_TIMEOUT_S, and Terminated after SIGTERM: all pods of the job may end.
        """
        starts = {engine.number: engine.start for engine in self._engines if engine.info is None and engine.start}
        if self._is_colocated or not self._connected:
            while awaited := [start for number, start in starts.items() if self._is_awaited(number, start)]:
                wait(awaited, POLL_INTERVAL_S)
        if self._is_colocated:
            return
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(starts) == len(self._engines) and not wait(starts.values(), POLL_INTERVAL_S, FIRST_COMPLETED).done:
            if self._termination is not None and self._termination.requested:
                raise Terminated("Training was terminated (SIGTERM) without a rollout engine.")
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"No rollout engine has started within {START_TIMEOUT_S} s. Check the pods of worker group "
                    f"{self._config.rollout.worker_group}."
                )

    def _is_awaited(self, number: int, start: Future[EngineInfo]) -> bool:
        """Whether an engine starts now, and not when its pod joins Ray. A pod may be lost meanwhile."""
        return not start.done() and self._processes.has_pods(number)

    def _restart_lost(self) -> None:
        """Start the processes again that have ended. Raises EngineLostError after MAX_LOSSES of one in one step."""
        self._has_lost = Future()
        lost = [engine for engine in self._engines if engine.loss is not None]
        for engine in lost:
            self._losses[engine.number] += 1
            if self._losses[engine.number] > MAX_LOSSES:
                self._raise_loss()
            _log.warning("starting rollout engine %s again: %s", engine.number, engine.loss)
            self._engines[engine.number] = self._start_process(engine.number)

    def _raise_loss(self) -> None:
        for engine in self._engines:
            if engine.loss is not None:
                raise engine.loss

    def _open_channels(self, engines: Sequence[_Engine]) -> None:
        """Connect the train workers with the devices of the engines: by pairs if colocated, else rank 0 with all."""
        workers = self._workers
        size = self._config.rollout.tensor_parallel_size
        if self._is_colocated:
            addresses = list(workers.all(TrainWorker.open_shared_channel))
            self._collect(self.loop.submit(self._open(engines, addresses, size)))
            self._raise_loss()
        else:
            start = workers.first(TrainWorker.weight_rendezvous)
            by_engine = self._call(engines, RolloutWorker.node_addresses)
            self._raise_loss()
            nodes = [start.address, *(node for engine in engines for node in by_engine[engine])]
            self._channels += 1
            first, *members = [
                GroupAddress(start.address, start.port, self._channels, member, len(nodes), nodes)
                for member in range(len(nodes))
            ]
            opening = self._open(engines, members, size)
            self._beside(opening, lambda: workers.all(TrainWorker.open_group_channel, first))

    async def _open(
        self, engines: Sequence[_Engine], addresses: Sequence[ChannelAddress], size: int
    ) -> dict[_Engine, BaseException | None]:
        return await _gather_results(
            {
                engine: _open_channel(engine, addresses[index * size : (index + 1) * size])
                for index, engine in enumerate(engines)
            }
        )

    def _beside(
        self, receiving: Coroutine[Any, Any, dict[_Engine, T | BaseException]], send: Callable[[], R]
    ) -> tuple[R, dict[_Engine, T]]:
        """Call the train workers with `send` while the engines run `receiving`. Return the results of both.

        Raises EngineLostError if the process of an engine ends, else the error of an engine, else of a train worker.
        """
        received = self.loop.submit(receiving)
        try:
            sent = send()
        except Exception:
            self._collect(received)  # the error of a receiver is the cause of the sender's
            self._raise_loss()
            raise
        results = self._collect(received)
        self._raise_loss()
        return sent, results

    async def _read_metrics(self) -> dict[int, list[Metric]]:
        async def read(engine: _Engine) -> list[Metric]:
            async with asyncio.timeout(METRICS_TIMEOUT_S):
                return await engine.process.call(RolloutWorker.read_metrics)

        engines = [engine for engine in self._engines if engine.serves and engine.loss is None]
        results = await asyncio.gather(*(read(engine) for engine in engines), return_exceptions=True)
        return {
            engine.number: metrics
            for engine, metrics in zip(engines, results, strict=True)
            if not isinstance(metrics, BaseException)
        }

    async def _start_router(self) -> None:
        self.router = Router(on_loss=self._lose)

    async def _serve(self) -> None:
        """Send requests to the connected engines."""
        self.router.forget_prefixes()
        for engine in self._connected:
            if not engine.serves:
                engine.serves = True
                assert engine.info is not None
                self.router.add(engine, max_requests=engine.info.max_requests)

    def _lose(self, engine: Engine, error: Exception) -> None:
        """Note the end of an engine's process. Other errors of an engine end all requests."""
        if not isinstance(error, EngineLostError):
            self.router.fail(error)
            return
        assert isinstance(engine, _Engine)
        engine.loss = error
        with suppress(InvalidStateError):  # another engine is lost as well
            if engine in self._engines:  # else it was already started again
                self._has_lost.set_result(None)

    def _call(
        self,
        engines: Sequence[_Engine],
        method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> dict[_Engine, R]:
        """Call the method in the engines, and wait. Return the results of those whose process has not ended."""
        return self._collect(self.loop.submit(self._gather(engines, method, *arguments, **options)))

    async def _gather(
        self,
        engines: Sequence[_Engine],
        method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> dict[_Engine, R | BaseException]:
        alive = [engine for engine in engines if engine.loss is None]
        return await _gather_results({engine: engine.process.call(method, *arguments, **options) for engine in alive})

    def _collect(
        self, gathered: Future[dict[_Engine, R | BaseException]], timeout_s: float | None = None
    ) -> dict[_Engine, R]:
        """Return the results, and note the engines whose processes ended. Other errors are raised if none did."""
        results: dict[_Engine, R] = {}
        errors: list[BaseException] = []
        for engine, result in gathered.result(timeout_s).items():
            if isinstance(result, EngineLostError):
                engine.loss = result
            elif isinstance(result, BaseException):
                errors.append(result)
            else:
                results[engine] = result
        if errors and all(engine.loss is None for engine in self._engines):
            raise errors[0]
        return results


class _Engine:
    """One process of an engine, as the router's Engine."""

    start: Future[EngineInfo] | None = None
    """The call that starts the engine. None: not yet."""
    info: EngineInfo | None = None
    """Its result. None: the engine has not started."""
    verification: Verification | None = None
    """None: the engine has no channel for weights."""
    loss: EngineLostError | None = None
    """The process has ended."""
    serves = False
    """Whether the router sends requests to it."""

    def __init__(self, number: int, process: EngineProcess) -> None:
        self.number = number
        self.process = process

    async def submit(self, requests: Sequence[Request]) -> None:
        await self.process.call(RolloutWorker.submit, requests)

    async def ended(self) -> list[tuple[int, Response | EngineError]]:
        return await self.process.call(RolloutWorker.ended)

    async def abort(self, numbers: Sequence[int]) -> None:
        await self.process.call(RolloutWorker.abort, numbers)


async def _gather_results(calls: Mapping[_Engine, Awaitable[R]]) -> dict[_Engine, R | BaseException]:
    """Return the result or the error of each engine's call."""
    return dict(zip(calls, await asyncio.gather(*calls.values(), return_exceptions=True), strict=True))


async def _open_channel(engine: _Engine, addresses: Sequence[ChannelAddress]) -> None:
    """Open the engine's channel. If its process ends, the other members of its group do not wait for it."""
    try:
        await engine.process.call(RolloutWorker.open_channel, addresses)
    except EngineLostError:
        if isinstance(addresses[0], GroupAddress):
            with suppress(DistError):
                await asyncio.to_thread(end_meeting, addresses[0])
        raise
