"""A worker process that only generates (rollout.mode separate): a rollout engine and the channel of its weights."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import count_train_workers
from rlt_trainer.cluster.rendezvous import Rendezvous, node_address, use_interface_of
from rlt_trainer.cluster.stack_signal import write_stacks_on_signal
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.policy.model import DTYPES, prepare_model_files
from rlt_trainer.rollout.weight_channel import WeightChannel
from rlt_trainer.rollout.weight_sync import WeightSync
from rlt_trainer.telemetry.worker_telemetry import WorkerReport, WorkerTelemetry
from rlt_trainer.workers.engine_worker import EngineWorker
from rlt_trainer.workers.responder import Responder


class RolloutWorker(EngineWorker):
    """Its methods are called from several threads: new weights arrive while it generates."""

    def __init__(self, config: TrainingConfig, rank: int, world_size: int) -> None:
        """`rank` and `world_size` count the rollout workers."""
        write_stacks_on_signal()
        self._config = config
        self._rank = rank
        self._address = node_address()
        self._device = torch.device("cuda" if config.rollout_devices_per_worker > 0 else "cpu")
        self._scratch = tempfile.TemporaryDirectory(prefix="rlt-model-")
        if self._device.type == "cpu":
            use_interface_of(self._address)
            torch.set_num_threads(config.rollout_cpus_per_worker)

    def start_engine(self, probes: Sequence[Prompt]) -> None:
        """Start the engine. Each weight sync is verified on `probes`."""
        disable_progress_bar()  # type: ignore[no-untyped-call] # a log is not a terminal
        files = prepare_model_files(self._config.model, Path(self._scratch.name))
        tokenizer = load_tokenizer(self._config.model)
        self._responder = Responder.start(
            self._config, files, device=self._device, tokenizer=tokenizer, interruptible=True
        )
        self._weight_sync = WeightSync(self._responder.engine, probes, self._config.model.dtype)

    def open_channel(self, rendezvous: Rendezvous, size: int) -> None:
        """Join the process group of the weight transfer, of `size` members. Member 0 is the first train worker."""
        self._channel = WeightChannel(
            rendezvous.address, rendezvous.port, rank=1 + self._rank, size=size, device=self._device
        )
        self.telemetry = WorkerTelemetry(
            count_train_workers(self._config) + self._rank,  # after the train workers
            device=self._device,
            dtype=DTYPES[self._config.model.dtype],
            profiles=Path(self._config.run_directory) / "profiles",
            profiler=self._config.observability.profiler,
        )

    def receive_weights(self, expected: Tensor) -> float:
        """Receive the policy's weights, and verify them with its log-probabilities of the probes, [B, T] `expected`.

        Responses in progress continue with the new weights. Returns the mean difference of log-probabilities. Raises
        StaleWeightsError.
        """
        with self.telemetry.measure("update_weights"):
            return self._weight_sync.sync(self._channel.receive(), lambda: expected)

    def end_step(self, step: int) -> WorkerReport:
        """Return the report of `step`. Later measurements belong to the next step."""
        report = self.telemetry.end()
        self.telemetry.begin(step + 1)
        return report

    def close(self) -> None:
        """Release all resources."""
        self.responder.engine.close()
        self._scratch.cleanup()
