"""The process that measures, one for each rank, where the training will place it."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import Role
from rlt_trainer.cluster.rendezvous import Rendezvous, free_port, node_address
from rlt_trainer.preflight import shared_folder
from rlt_trainer.preflight.connections import Listener, broken_links, listen
from rlt_trainer.preflight.measured import BrokenLink, Device, Folder, Pod, Reduction
from rlt_trainer.preflight.pod_facts import pod_facts, pod_name


class Probe:
    """The worker class of a preflight's WorkerGroup."""

    def __init__(self, config: TrainingConfig, rank: int, world_size: int) -> None:
        self._config = config
        self._address = node_address()
        self._listening: socket.socket | None = None

    def facts(self, role: Role) -> tuple[Pod, Device]:
        """The pod, and what torch shows of accelerators."""
        return pod_facts(self._config, role, self._address), _device(pod_name())

    def clock(self) -> float:
        """Unix time."""
        return time.time()

    def write(self, token: str) -> str | None:
        """Write this pod's file into the run directory; why not, if it cannot be."""
        return shared_folder.write(self._scratch(token), pod_name())

    def look(self, token: str, error: str | None, written: Sequence[str]) -> Folder:
        """Look for the files of the pods that have written."""
        return shared_folder.look(self._scratch(token), pod_name(), error, written)

    def remove(self, token: str) -> None:
        """Remove what was written."""
        shared_folder.remove(self._scratch(token))

    def listen(self) -> Listener:
        """Wait for connections at a free port."""
        self._listening = listen(self._address)
        return Listener(pod_name(), self._address, int(self._listening.getsockname()[1]))

    def broken_links(self, peers: Sequence[Listener]) -> list[BrokenLink]:
        """Connections to the others that cannot be made."""
        return broken_links(pod_name(), peers)

    def rendezvous(self) -> Rendezvous:
        """A free port at this pod, for rank 0."""
        return Rendezvous(self._address, free_port(self._address))

    def all_reduce(self, rendezvous: Rendezvous, rank: int, ranks: int, backend: str, patience_s: float) -> Reduction:
        """All-reduces with all the others."""
        from rlt_trainer.preflight.all_reduce import all_reduce

        return all_reduce(
            rendezvous,
            pod=pod_name(),
            address=self._address,
            rank=rank,
            ranks=ranks,
            backend=backend,
            patience_s=patience_s,
        )

    def _scratch(self, token: str) -> Path:
        return shared_folder.scratch(self._config.run_directory, token)


def _device(pod: str) -> Device:
    import torch

    if not torch.cuda.is_available():
        return Device(pod, 0)
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)
    return Device(pod, torch.cuda.device_count(), properties.name, str(uuid) if uuid else None, free, total)
