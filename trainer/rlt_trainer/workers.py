"""The ranks as Ray actors: one for each device of each worker pod, or one for each pod without any."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlt_api.training_config import TrainingConfig
from rlt_trainer.errors import TrainingError

PATIENCE_S = 600
"""How long to wait for the cluster's resources."""


class RankActor:
    """A rank in its own process. Only there FSDP and vLLM are imported: the driver's processor is small."""

    def __init__(self, config: TrainingConfig, rank: int, ranks: int) -> None:
        from rlt_trainer.rank import Rank

        self._rank = Rank(config, rank, ranks, node_address=ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the rank."""
        return getattr(self._rank, method)(*arguments)


class Workers:
    """All ranks. A call goes to all of them at once; the first error of any is raised here."""

    def __init__(self, config: TrainingConfig) -> None:
        self.ranks = rank_count(config)
        self._group = _reserve(config)
        per_worker = max(1, config.devices_per_worker)
        threads = max(1, config.cpus_per_worker // per_worker)
        actor = ray.remote(RankActor)
        self._actors: list[Any] = [
            actor.options(
                num_cpus=threads,
                num_gpus=min(1, config.devices_per_worker),
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=self._group, placement_group_bundle_index=rank // per_worker
                ),
            ).remote(config, rank, self.ranks)
            for rank in range(self.ranks)
        ]

    def connect(self) -> list[str]:
        """Let the ranks meet at rank 0's node. Returns the nodes' addresses by rank."""
        self.all("connect", self.first("rendezvous"))
        return self.all("node_address")

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every rank with the same arguments. Returns the results by rank."""
        return _gather([actor.call.remote(method, *arguments) for actor in self._actors])

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        """Call a method of every rank with its own arguments: each of `shares` has one element for every rank."""
        by_rank = zip(self._actors, *shares, strict=True)
        return _gather([actor.call.remote(method, *arguments) for actor, *arguments in by_rank])

    def first(self, method: str, *arguments: Any) -> Any:
        """Call a method of rank 0."""
        return _gather([self._actors[0].call.remote(method, *arguments)])[0]


def rank_count(config: TrainingConfig) -> int:
    """Ranks in all."""
    return config.workers * max(1, config.devices_per_worker)


def _reserve(config: TrainingConfig) -> PlacementGroup:
    """One bundle a worker pod, spread over the nodes. Waits for the pods."""
    bundle: dict[str, float] = {"CPU": config.cpus_per_worker}
    if config.devices_per_worker:
        bundle["GPU"] = config.devices_per_worker
    group: PlacementGroup = placement_group([bundle] * config.workers, strategy="SPREAD")
    deadline = time.monotonic() + PATIENCE_S
    while not ray.wait([group.ready()], timeout=10)[0]:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        there = {name: amount for name, amount in resources.items() if name in bundle}
        if time.monotonic() > deadline:
            raise TrainingError(
                f"Ray has had no room for {config.workers} workers of {bundle} for {PATIENCE_S} s: it has {there} in "
                "all. Look at the worker pods: each must offer what the spec asks for."
            )
        print(f"[preparing] waiting for {config.workers} workers of {bundle}; Ray has {there}", flush=True)
    return group


def _gather(references: list[Any]) -> list[Any]:
    """The results in order; the first error as soon as it happens, since the other ranks may wait forever then."""
    pending = references
    while pending:
        done, pending = ray.wait(pending)
        ray.get(done)
    return list(ray.get(references))
