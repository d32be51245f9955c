"""A process that only generates (rollout.mode separate): an engine, and the way on which the weights come."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.policy.model import DTYPES, model_files
from rlt_trainer.rollout.engine import Response
from rlt_trainer.rollout.weight_channel import WeightChannel
from rlt_trainer.rollout.weight_sync import WeightSync
from rlt_trainer.telemetry.worker_telemetry import WorkerReport, WorkerTelemetry
from rlt_trainer.workers.rendezvous import Rendezvous, use_interface_of
from rlt_trainer.workers.responder import Responder


class RolloutWorker:
    """Its methods are called from several threads: weights arrive while it generates."""

    def __init__(self, config: TrainingConfig, *, node_address: str) -> None:
        self._config = config
        self._device = torch.device("cuda" if config.rollout_devices_per_worker > 0 else "cpu")
        self._scratch = tempfile.TemporaryDirectory(prefix="rlt-model-")
        if self._device.type == "cpu":
            use_interface_of(node_address)
            torch.set_num_threads(config.rollout_cpus_per_worker)

    def start_engine(self, probes: Sequence[Prompt]) -> None:
        """Start the engine. `probes` are what its weights are verified on after each sync."""
        disable_progress_bar()  # type: ignore[no-untyped-call] # a log is no terminal
        files = model_files(self._config.model, Path(self._scratch.name))
        tokenizer = load_tokenizer(self._config.model)
        self._responder = Responder.start(
            self._config, files, device=self._device, tokenizer=tokenizer, interruptible=True
        )
        self._sync = WeightSync(self._responder.engine, probes, self._config.model.dtype)

    def open_channel(self, meeting: Rendezvous, place: int, size: int) -> None:
        """Join the group of the weights as its member `place` of `size`: 0 is the training's first rank."""
        self._channel = WeightChannel(meeting.address, meeting.port, rank=place, size=size, device=self._device)
        self._telemetry = WorkerTelemetry(
            self._config.workers * max(1, self._config.devices_per_worker) + place - 1,  # after the training's ranks
            device=self._device,
            dtype=DTYPES[self._config.model.dtype],
            profiles=Path(self._config.run_directory) / "profiles",
            profiler=self._config.observability.profiler,
        )

    def receive_weights(self, expected: Tensor) -> float:
        """Take the weights that the training sends, and verify them by its log-probabilities of the probe, [B, T].

        What is being generated goes on with them. Raises StaleWeightsError.
        """
        with self._telemetry.measure("update_weights"):
            return self._sync.bring(self._channel.receive(), lambda: expected)

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """One response to each prompt."""
        with self._telemetry.measure("gen"):
            return self._responder.generate(prompts, seeds)

    def generate_greedily(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """The most probable response to each prompt."""
        return self._responder.generate_greedily(prompts, seeds)

    def converse(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """One conversation with the environment on each prompt."""
        with self._telemetry.measure("gen"):
            return self._responder.converse(prompts, seeds)

    def converse_greedily(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """The same, of the most probable tokens."""
        return self._responder.converse_greedily(prompts, seeds)

    def end_step(self, step: int) -> WorkerReport:
        """What this process did during `step`; what it does from now on belongs to the next one."""
        report = self._telemetry.end()
        self._telemetry.begin(step + 1)
        return report

    def close(self) -> None:
        """Free everything."""
        self._responder.engine.close()
        self._scratch.cleanup()
