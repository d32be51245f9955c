"""The process of one rollout engine: requests come in batches, and their responses are collected."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from prometheus_client.core import Metric
from transformers.utils.logging import disable_progress_bar

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.cluster.pods import count_train_workers
from rlt_trainer.cluster.process_variables import set_variables
from rlt_trainer.cluster.rendezvous import node_address, use_interface_of
from rlt_trainer.cluster.stack_signal import write_stacks_on_signal
from rlt_trainer.cluster.successor import start_successor
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.policy.model_files import DTYPES, prepare_model_files
from rlt_trainer.rollout.build_engine import build_engine, load_stop_token_ids
from rlt_trainer.rollout.engine import EngineDiedError, EngineError, Request
from rlt_trainer.rollout.weight_channel import ChannelAddress, Received
from rlt_trainer.rollout.weight_sums import Sums
from rlt_trainer.telemetry.engine_counters import EngineCounters
from rlt_trainer.telemetry.worker_telemetry import WorkerReport, WorkerTelemetry
from rlt_trainer.workers.engine_part import EngineParts

Ended = tuple[int, Response | EngineError]
"""The number of a request, and its result."""


@dataclass(frozen=True)
class EngineInfo:
    """What the driver needs from an engine to send requests."""

    max_requests: int
    """Number of requests that run at the same time. Others wait in the engine."""
    stop_token_ids: tuple[int, ...]
    """Tokens that end a response."""


class RolloutWorker:
    """One engine on its device, or on several (rollout.tensorParallelSize). One event loop makes all calls.

    The process does not use the devices itself: vLLM has a process for each of them.
    """

    def __init__(
        self,
        config: TrainingConfig,
        number: int,
        parts: Sequence[Callable[[], Any]] = (),
        *,
        address: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`number`: of this engine. `parts`: start the actors of its further pods (EnginePart).

        `address`: of this node. Default: its address in the Ray cluster. `variables`: as in start_actor.
        """
        set_variables(variables or {})
        write_stacks_on_signal()
        self._config = config
        on_gpu = (config.rollout_devices_per_worker if config.rollout_workers else config.devices_per_worker) > 0
        self._device = torch.device("cuda" if on_gpu else "cpu")
        self._address = address or node_address()
        self._parts = EngineParts(parts) if parts else None
        self._scratch = tempfile.TemporaryDirectory(prefix="rlt-model-")
        use_interface_of(self._address)
        self._ended: list[Ended] = []
        self._death: EngineDiedError | None = None
        self._has_ended = asyncio.Event()
        self._version = 0
        """Of the weights that the engine received last."""
        self._running: dict[int, int] = {}
        """The version of the weights at the arrival of each request in progress, by its number."""
        self._gen = ExitStack()
        self._counters = EngineCounters()
        self.telemetry = WorkerTelemetry(
            count_train_workers(config) + number,  # after the train workers
            engine=number,
            device=torch.device("cpu"),
            dtype=DTYPES[config.model.dtype],
            profiles=Path(config.run_directory) / "profiles",
        )

    async def start(self) -> EngineInfo:
        """Start the engine. Raises ValueError or EngineError."""
        disable_progress_bar()  # type: ignore[no-untyped-call] # a log is not a terminal
        model = self._config.model
        files = prepare_model_files(model, Path(self._scratch.name))
        eos = load_tokenizer(model).eos_token_id
        stops = load_stop_token_ids(files, eos, trust_remote_code=model.trust_remote_code)
        pod = await self._parts.start(self._address) if self._parts else None
        self.engine = build_engine(self._config, files=files, device=self._device, pod=pod)
        return EngineInfo(await self.engine.start(), stops)

    async def submit(self, requests: Sequence[Request]) -> None:
        """Add requests. An idle engine schedules all of them together."""
        if not self._running:
            self._gen.enter_context(self.telemetry.measure("gen"))
        self._running |= {request.number: self._version for request in requests}
        await self.engine.submit(requests, self._end)

    async def ended(self) -> list[Ended]:
        """Return the requests that ended since the last call. Waits for at least one. Raises EngineDiedError."""
        await self._has_ended.wait()
        if self._death is not None:
            raise self._death
        self._has_ended.clear()
        ended = self._ended
        self._ended = []
        return ended

    async def abort(self, numbers: Sequence[int]) -> None:
        """End requests with the tokens generated so far."""
        await self.engine.abort(numbers)

    async def pause(self) -> None:
        """Stop generating until `resume`, and release memory (rollout.freeCacheEngine). Requests keep their tokens."""
        await self.engine.pause()
        await self.engine.sleep()

    async def resume(self) -> None:
        """Allocate the KV cache, and continue after `pause` or `receive_weights`."""
        with self.telemetry.measure("update_weights"):
            await self.engine.wake("kv_cache")
        await self.engine.resume()

    async def open_channel(self, addresses: Sequence[ChannelAddress]) -> None:
        """Connect to the senders of weights: one address for each device of the engine."""
        await self.engine.open_channel(addresses)

    async def receive_weights(self) -> Received:
        """Pause, and receive the policy's weights. `resume` allocates the KV cache, after the transfer (as in verl).

        Returns what the engine has now.
        """
        with self.telemetry.measure("update_weights"):
            await self.engine.pause()
            await self.engine.wake("weights")
            received = await self.engine.receive_weights()
        self._version = received.version
        return received

    async def sum_weights(self) -> Sums:
        """Return the sums over the weights of the engine."""
        return await self.engine.sum_weights()

    async def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """Return the log-probabilities of all tokens but the first of each sequence."""
        return [value for row in await self.engine.log_probs(sequences) for value in row]

    async def node_addresses(self) -> list[str]:
        """Return the address of each device's node, after `start`."""
        pods = self._parts.addresses if self._parts else [self._address]
        return [address for address in pods for _ in range(self._config.rollout.tensor_parallel_size // len(pods))]

    async def read_metrics(self) -> list[Metric]:
        """Read the engine's own metrics, after `start`."""
        return self.engine.read_metrics()

    async def end_step(self, step: int) -> WorkerReport:
        """Return the report of `step`. Later measurements belong to the next step."""
        start_successor()  # beside a step, not beside the start of this program
        report = self.telemetry.end()
        self.telemetry.begin(step + 1)
        return replace(report, counters=self._counters.take(self.engine.read_metrics()))

    async def close(self) -> None:
        """Release all resources."""
        self.engine.close()
        if self._parts:
            self._parts.close()
        self._scratch.cleanup()

    def _end(self, number: int, result: Response | EngineError) -> None:
        version = self._running.pop(number)
        if not self._running:
            self._gen.close()
        if isinstance(result, EngineDiedError):
            self._death = result
        else:
            result = replace(result, version=version) if isinstance(result, Response) else result
            self._ended.append((number, result))
        self._has_ended.set()
