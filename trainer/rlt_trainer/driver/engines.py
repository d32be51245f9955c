"""The rollout engines of a run: they sample responses, and the policy's weights are synced to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.engine_processes import EngineProcess, EngineProcesses
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rollout.build_engine import build_sampling
from rlt_trainer.rollout.engine import EngineError, Request, Sampling
from rlt_trainer.rollout.router import Router
from rlt_trainer.rollout.weight_channel import ChannelAddress, GroupAddress
from rlt_trainer.rollout.weight_sums import Sums
from rlt_trainer.rollout.weight_sync import Verification, build_probe
from rlt_trainer.telemetry.worker_telemetry import WorkerReport
from rlt_trainer.workers.rollout_worker import EngineInfo, RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

P = ParamSpec("P")
R = TypeVar("R")


class Engines:
    """All rollout engines, and the event loop that calls them.

    Colocated engines use the devices of the train workers, so they are paused while these train.
    """

    sampling: Sampling
    """The sampling of training responses. Set by `start`."""
    router: Router
    """Samples responses, in the event loop. Set by `start`."""

    def __init__(self, config: TrainingConfig, workers: WorkerGroup[TrainWorker], processes: EngineProcesses) -> None:
        self._config = config
        self._workers = workers
        self._processes = processes
        self._is_colocated = config.rollout.mode == "colocated"
        self._engines: list[_Engine] = []
        self._syncs = 0
        self.loop = EventLoopThread("engines")

    def start(self, probes: Sequence[Prompt]) -> None:
        """Start the engines. Each weight sync is verified on `probes`."""
        self._probes = probes
        self._engines = [_Engine(self._processes.start(number)) for number in range(len(self._processes))]
        infos = self._call(RolloutWorker.start)
        self.sampling = build_sampling(self._config, infos[0].stop_token_ids)
        self.loop.submit(self._start_router(infos)).result()
        self._open_channels()
        for engine, held in zip(self._engines, self._call(RolloutWorker.sum_weights), strict=True):
            engine.verification = Verification(held, self._config.model.dtype)

    def sync_weights(self) -> float | None:
        """Sync the policy's weights to all engines, and verify them. Requests continue with the new weights.

        Returns the largest of the engines' mean differences of log-probabilities. None: this sync is not verified
        (rollout.verifyWeightsFreq). Raises StaleWeightsError.
        """
        frequency = self._config.rollout.verify_weights_freq
        is_verified = frequency > 0 and self._syncs % frequency == 0
        self._syncs += 1
        receiving = self.loop.submit(self._gather(RolloutWorker.receive_weights))
        try:
            sent = self._workers.all(TrainWorker.send_weights, add_up=is_verified)[0]
        except Exception:
            receiving.result()  # the error of a receiver is the cause of the sender's
            raise
        receiving.result()
        self.loop.submit(self._forget_prefixes()).result()
        difference = self._verify(sent) if is_verified else None
        if not is_verified:
            self._call(RolloutWorker.resume)
        return difference

    def pause(self) -> None:
        """Pause colocated engines, and free their memory (rollout.freeCacheEngine), until the next weight sync."""
        if self._is_colocated:
            self._call(RolloutWorker.pause)

    def end_step(self, step: int) -> list[WorkerReport]:
        """Return the reports of the engines on `step`."""
        return self._call(RolloutWorker.end_step, step)

    def close(self) -> None:
        """Stop the engines."""
        self.loop.submit(self.router.close()).result()
        self._call(RolloutWorker.close)
        self.loop.close()

    def _verify(self, sent: Sums) -> float:
        held = self._call(RolloutWorker.sum_weights)
        self._call(RolloutWorker.resume)
        expected = self._workers.all(TrainWorker.probe_log_probs, self._probes)[0]
        actual = self._call(RolloutWorker.log_probs, build_probe(self._probes))
        return max(
            engine.verification.verify(sent, sums, expected=expected, actual=log_probs)
            for engine, sums, log_probs in zip(self._engines, held, actual, strict=True)
        )

    def _open_channels(self) -> None:
        """Connect the train workers with the devices of the engines: by pairs if colocated, else rank 0 with all."""
        workers, size = self._workers, self._config.rollout.tensor_parallel_size
        addresses: list[ChannelAddress]
        if self._is_colocated:
            addresses = list(workers.all(TrainWorker.open_shared_channel))
            opening = self.loop.submit(self._open(addresses, size))
        else:
            start = workers.first(TrainWorker.rendezvous)
            nodes = [start.address, *(node for node in self._call(RolloutWorker.node_address) for _ in range(size))]
            members = [
                GroupAddress(start.address, start.port, member, len(nodes), nodes) for member in range(len(nodes))
            ]
            addresses = list(members[1:])
            opening = self.loop.submit(self._open(addresses, size))
            workers.all(TrainWorker.open_group_channel, members[0])
        opening.result()

    async def _open(self, addresses: Sequence[ChannelAddress], size: int) -> None:
        await asyncio.gather(
            *(
                engine.process.call(RolloutWorker.open_channel, addresses[number * size : (number + 1) * size])
                for number, engine in enumerate(self._engines)
            )
        )

    async def _start_router(self, infos: Sequence[EngineInfo]) -> None:
        self.router = Router(on_loss=lambda _, error: self.router.fail(error))
        for engine, info in zip(self._engines, infos, strict=True):
            self.router.add(engine, max_requests=info.max_requests)

    async def _forget_prefixes(self) -> None:
        self.router.forget_prefixes()

    def _call(
        self, method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]], *arguments: P.args, **options: P.kwargs
    ) -> list[R]:
        """Call the method in all engines, and wait. Return the results by number."""
        return self.loop.submit(self._gather(method, *arguments, **options)).result()

    async def _gather(
        self, method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]], *arguments: P.args, **options: P.kwargs
    ) -> list[R]:
        calls = (engine.process.call(method, *arguments, **options) for engine in self._engines)
        return list(await asyncio.gather(*calls))


class _Engine:
    """One engine, as the router's Engine."""

    verification: Verification

    def __init__(self, process: EngineProcess) -> None:
        self.process = process

    async def submit(self, requests: Sequence[Request]) -> None:
        await self.process.call(RolloutWorker.submit, requests)

    async def ended(self) -> list[tuple[int, Response | EngineError]]:
        return await self.process.call(RolloutWorker.ended)

    async def abort(self, numbers: Sequence[int]) -> None:
        await self.process.call(RolloutWorker.abort, numbers)
