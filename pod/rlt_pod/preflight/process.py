"""The measuring process: one for each accelerator of a worker pod, or one in a pod without accelerators."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_pod.preflight.facts import shared_folder
from rlt_pod.preflight.facts.all_reduce import Reduction, Rendezvous, all_reduce, import_torch, listen_for_ranks
from rlt_pod.preflight.facts.bucket import BucketFacts, measure_bucket, uses_bucket
from rlt_pod.preflight.facts.connections import BrokenLink, Listener, find_broken_links, listen
from rlt_pod.preflight.facts.data_facts import DataFacts, measure_data
from rlt_pod.preflight.facts.memory import MemoryWatch, Peak
from rlt_pod.preflight.facts.network_facts import NetworkFacts, measure_network
from rlt_pod.preflight.facts.service_facts import Device, ServiceFacts, measure_device, measure_services
from rlt_pod.preflight.trial.engine import Answer, ask_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlt_pod.preflight.expected import Expected


class Process:
    """Measures the pod that it runs in. `address` is the pod's in the Ray cluster."""

    def __init__(self, expected: Expected, pod: str, address: str, *, is_head: bool = False) -> None:
        self._expected = expected
        self._address = address
        self._is_head = is_head
        self.pod = pod
        self._listening: socket.socket | None = None
        self._store: Any = None
        self._watch: MemoryWatch | None = None

    def import_torch(self) -> bool:
        """Import torch. Return whether the image has it."""
        return import_torch()

    def clock(self) -> float:
        """Return the Unix time."""
        return time.time()

    def measure_network(self) -> NetworkFacts:
        """Measure the network of the pod."""
        return measure_network(self.pod, self._address, is_head=self._is_head, head_service=self._expected.head_service)

    def listen(self) -> Listener:
        """Listen for connections on a free port."""
        self._listening = listen(self._address)
        return Listener(self.pod, self._address, int(self._listening.getsockname()[1]))

    def find_broken_links(self, peers: Sequence[Listener]) -> list[BrokenLink]:
        """Connect to the peers. Return the connections that failed."""
        return find_broken_links(self.pod, peers)

    def listen_for_ranks(self) -> tuple[str, int]:
        """Start the store of an all-reduce, for rank 0. Return its address and port."""
        self._store = listen_for_ranks(self._address)
        return self._address, self._store.port

    def all_reduce(self, rendezvous: Rendezvous, rank: int) -> Reduction:
        """Reduce with all other ranks."""
        store = self._store
        self._store = None
        return all_reduce(rendezvous, pod=self.pod, address=self._address, rank=rank, store=store)

    def measure_services(self) -> ServiceFacts:
        """Measure limits, programs and devices of the pod."""
        return measure_services(self.pod, is_head=self._is_head)

    def measure_device(self) -> Device | None:
        """Measure the accelerators that torch sees in this process."""
        return measure_device(self.pod)

    def ask_engine(self) -> Answer:
        """Start the engine of the job on the accelerators of this process, and generate a line."""
        assert self._expected.engine
        return ask_engine(self._expected.engine, self.pod, str(Path(__file__).absolute().parents[2]))

    def watch_memory(self) -> None:
        """Sample the memory of the pod from now on."""
        self._watch = MemoryWatch()

    def read_memory(self) -> Peak:
        """Return the largest samples since `watch_memory`."""
        assert self._watch
        return self._watch.end(self.pod)

    def measure_data(self) -> DataFacts:
        """Measure files and caches of the pod."""
        return measure_data(self.pod, [*self._expected.models, *self._expected.data_files], is_head=self._is_head)

    def measure_bucket(self) -> BucketFacts | None:
        """Measure the bucket of the run. None: this pod does not use it."""
        bucket = self._expected.bucket
        if bucket is None or not uses_bucket(bucket.groups, is_head=self._is_head):
            return None
        return measure_bucket(self.pod, bucket.command)

    def write_file(self, token: str) -> str | None:
        """Write this pod's file into the run directory. Return the error, or None."""
        return shared_folder.write_file(self._get_scratch_folder(token), self.pod)

    def find_files(self, token: str, error: str | None, written: Sequence[str]) -> shared_folder.Folder:
        """Find the files of the pods in `written`."""
        return shared_folder.find_files(self._get_scratch_folder(token), self.pod, error, written)

    def remove_folder(self, token: str) -> None:
        """Remove the files."""
        shared_folder.remove_folder(self._get_scratch_folder(token))

    def _get_scratch_folder(self, token: str) -> Path:
        return shared_folder.get_scratch_folder(self._expected.run_directory, token)
