"""The part that train workers and rollout workers have in common: responses of their rollout engine."""

from __future__ import annotations

from collections.abc import Sequence

from rlt_trainer.batches.response import Response
from rlt_trainer.cluster.connections import watch_connections
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.telemetry.worker_telemetry import WorkerTelemetry
from rlt_trainer.workers.responder import Responder


class EngineWorker:
    """A worker process that can have a rollout engine."""

    telemetry: WorkerTelemetry
    _address: str
    """The address of this node in the Ray cluster."""
    _responder: Responder | None = None

    def node_address(self) -> str:
        """Return the address of this worker's node."""
        return self._address

    @property
    def responder(self) -> Responder:
        """The engine of this worker. It must be started."""
        assert self._responder is not None, "this worker has no rollout engine"
        return self._responder

    def watch_connections(self, addresses: Sequence[str]) -> None:
        """End connections to other workers at `addresses` that do not answer. All process groups must exist."""
        watch_connections(set(addresses) - {self._address})

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """Sample one response to each prompt."""
        with self.telemetry.measure("gen"):
            return self.responder.generate(prompts, seeds)

    def generate_greedily(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """Generate the most probable response to each prompt."""
        return self.responder.generate_greedily(prompts, seeds)

    def converse(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """Sample one conversation with the environment on each prompt."""
        with self.telemetry.measure("gen"):
            return self.responder.converse(prompts, seeds)

    def converse_greedily(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """Generate one conversation of the most probable tokens on each prompt."""
        return self.responder.converse_greedily(prompts, seeds)
