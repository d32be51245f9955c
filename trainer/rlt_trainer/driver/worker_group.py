"""The processes in the worker pods as Ray actors: one for each device, or one for each pod without any."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import RayActorError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlt_api.training_config import ROLLOUT_RESOURCE, TRAIN_RESOURCE, TrainingConfig
from rlt_trainer.errors import TrainingError

TIMEOUT_S = 600
"""How long to wait for the cluster's resources."""

Role = Literal["train", "rollout"]


@dataclass(frozen=True)
class Pods:
    """The worker pods of one role."""

    role: Role
    count: int
    devices: int
    """Accelerators of each. 0: one process on the CPU."""
    cpus: int
    """Threads of each."""
    resource: str | None
    """The custom resource of Ray that only these pods offer."""

    @property
    def processes(self) -> int:
        """Processes in one pod."""
        return max(1, self.devices)

    @property
    def threads(self) -> int:
        """Threads of one process."""
        return max(1, self.cpus // self.processes)

    def bundle(self) -> dict[str, float]:
        """What one pod has to offer."""
        bundle: dict[str, float] = {"CPU": self.cpus}
        if self.devices:
            bundle["GPU"] = self.devices
        if self.resource:
            bundle[self.resource] = 1
        return bundle


def training_pods(config: TrainingConfig) -> Pods:
    """The pods that train."""
    resource = TRAIN_RESOURCE if config.rollout_workers else None
    return Pods("train", config.workers, config.devices_per_worker, config.cpus_per_worker, resource)


def rollout_pods(config: TrainingConfig) -> Pods:
    """The pods that only generate."""
    count, devices, cpus = config.rollout_workers, config.rollout_devices_per_worker, config.rollout_cpus_per_worker
    return Pods("rollout", count, devices, cpus, ROLLOUT_RESOURCE)


class WorkerActor:
    """A rank or a rollout worker in its own process. Only there FSDP and vLLM are imported: the driver is small."""

    def __init__(self, config: TrainingConfig, role: Role, number: int, processes: int) -> None:
        node_address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._process: Any
        if role == "train":
            from rlt_trainer.workers.train_worker import TrainWorker

            self._process = TrainWorker(config, number, processes, node_address=node_address)
        else:
            from rlt_trainer.workers.rollout_worker import RolloutWorker

            self._process = RolloutWorker(config, node_address=node_address)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the rank or the rollout worker."""
        return getattr(self._process, method)(*arguments)


class WorkerGroup:
    """All processes of one role. A call goes to all of them at once; the first error of any is raised here."""

    def __init__(
        self, config: TrainingConfig, pods: Pods, *, concurrency: int = 1, program: type[Any] = WorkerActor
    ) -> None:
        """`concurrency`: so many calls of one process may run at a time, each in a thread of it. `program`: what runs
        in each of them, made and called like ProcessActor."""
        self._group = _reserve(pods)
        self.pods = pods
        actor = ray.remote(program)
        count = pods.count * pods.processes
        self.actors: list[Any] = [
            actor.options(
                num_cpus=pods.threads,
                num_gpus=min(1, pods.devices),
                max_concurrency=concurrency,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(pods.threads)}},
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=self._group, placement_group_bundle_index=number // pods.processes
                ),
            ).remote(config, pods.role, number, count)
            for number in range(count)
        ]

    def __len__(self) -> int:
        return len(self.actors)

    def pod_names(self) -> list[str]:
        """The pod of each process, whether it answers or not. (A pod's host name is its own name.)"""
        nodes: dict[int, str] = placement_group_table(self._group)["bundles_to_node_id"]
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
        return [hosts[nodes[number // self.pods.processes]] for number in range(len(self))]

    def submit(self, method: str, *arguments: Any) -> list[Any]:
        """Begin a call of a method of every process. Returns what `results` takes."""
        return [actor.call.remote(method, *arguments) for actor in self.actors]

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every process with the same arguments. Returns the results in their order."""
        return results(self.submit(method, *arguments))

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        """Call a method of every process with its own arguments: each of `shares` has one element for every one."""
        by_process = zip(self.actors, *shares, strict=True)
        return results([actor.call.remote(method, *arguments) for actor, *arguments in by_process])

    def first(self, method: str, *arguments: Any) -> Any:
        """Call a method of the first process."""
        return results([self.actors[0].call.remote(method, *arguments)])[0]


class TrainWorkers(WorkerGroup):
    """All ranks of the training."""

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__(config, training_pods(config))
        self.ranks = len(self)

    def connect(self) -> list[str]:
        """Let the ranks meet at rank 0's node. Returns the nodes' addresses by rank."""
        self.all("connect", self.first("rendezvous"))
        return self.all("node_address")


def world_size(config: TrainingConfig) -> int:
    """Ranks in all."""
    pods = training_pods(config)
    return pods.count * pods.processes


def results(references: list[Any]) -> list[Any]:
    """The results of calls in order; the first error as soon as it happens, since others may wait forever then.

    Raises TrainingError where a process is gone, and else what the call raised.
    """
    pending = references
    try:
        while pending:
            done, pending = ray.wait(pending)
            ray.get(done)
        return list(ray.get(references))
    except RayActorError as error:
        reason = str(error).strip().partition("\n")[0]
        raise TrainingError(
            f"A process in a worker pod is gone ({reason}). Look at the pods' last state: OOMKilled asks for more "
            "memory or smaller batches. The run can be resumed from its latest checkpoint."
        ) from error


def _reserve(pods: Pods) -> PlacementGroup:
    """One bundle a worker pod, spread over the nodes. Waits for the pods."""
    bundle = pods.bundle()
    group: PlacementGroup = placement_group([bundle] * pods.count, strategy="SPREAD")
    deadline = time.monotonic() + TIMEOUT_S
    while not ray.wait([group.ready()], timeout=10)[0]:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        there = {name: amount for name, amount in resources.items() if name in bundle}
        if time.monotonic() > deadline:
            raise TrainingError(
                f"Ray has had no room for {pods.count} {pods.role} workers of {bundle} for {TIMEOUT_S} s: it has "
                f"{there} in all. Look at the worker pods: each must offer what the spec asks for."
            )
        print(f"[preparing] waiting for {pods.count} {pods.role} workers of {bundle}; Ray has {there}", flush=True)
    return group
