"""The measuring process of a preflight. There is one for each rank."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import Role
from rlt_trainer.cluster.rendezvous import Rendezvous, free_port, node_address
from rlt_trainer.preflight import shared_folder
from rlt_trainer.preflight.connections import Listener, find_broken_links, listen
from rlt_trainer.preflight.measurements import BrokenLink, Device, Folder, Pod, Reduction
from rlt_trainer.preflight.pod_facts import get_pod_name, measure_pod


class Probe:
    """The worker class of a preflight's WorkerGroup."""

    def __init__(self, config: TrainingConfig, rank: int, world_size: int) -> None:
        self._config = config
        self._address = node_address()
        self._listening: socket.socket | None = None

    def facts(self, role: Role) -> tuple[Pod, Device]:
        """Measure the pod and the accelerators that torch sees."""
        return measure_pod(self._config, role, self._address), _measure_device(get_pod_name())

    def clock(self) -> float:
        """Return the Unix time."""
        return time.time()

    def write_file(self, token: str) -> str | None:
        """Write this pod's file into the run directory. Return the error, or None."""
        return shared_folder.write_file(self._get_scratch_folder(token), get_pod_name())

    def find_files(self, token: str, error: str | None, written: Sequence[str]) -> Folder:
        """Find the files of the pods in `written`."""
        return shared_folder.find_files(self._get_scratch_folder(token), get_pod_name(), error, written)

    def remove_folder(self, token: str) -> None:
        """Remove the files."""
        shared_folder.remove_folder(self._get_scratch_folder(token))

    def listen(self) -> Listener:
        """Listen for connections on a free port."""
        self._listening = listen(self._address)
        return Listener(get_pod_name(), self._address, int(self._listening.getsockname()[1]))

    def find_broken_links(self, peers: Sequence[Listener]) -> list[BrokenLink]:
        """Connect to the peers. Return the connections that failed."""
        return find_broken_links(get_pod_name(), peers)

    def rendezvous(self) -> Rendezvous:
        """Return a free port of this pod, for rank 0."""
        return Rendezvous(self._address, free_port(self._address))

    def all_reduce(self, rendezvous: Rendezvous, rank: int, ranks: int, backend: str, timeout_s: float) -> Reduction:
        """Reduce with all other ranks."""
        from rlt_trainer.preflight.all_reduce import all_reduce

        return all_reduce(
            rendezvous,
            pod=get_pod_name(),
            address=self._address,
            rank=rank,
            ranks=ranks,
            backend=backend,
            timeout_s=timeout_s,
        )

    def _get_scratch_folder(self, token: str) -> Path:
        return shared_folder.get_scratch_folder(self._config.run_directory, token)


def _measure_device(pod: str) -> Device:
    import torch

    if not torch.cuda.is_available():
        return Device(pod, 0)
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)
    return Device(pod, torch.cuda.device_count(), properties.name, str(uuid) if uuid else None, free, total)
