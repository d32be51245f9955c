"""The worker processes of one role, and typed calls of their methods in all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.actors import results, start_actor, submit
from rlt_trainer.cluster.placement import find_hosts, reserve_pods
from rlt_trainer.cluster.pods import Pods

if TYPE_CHECKING:
    from ray import ObjectRef

W = TypeVar("W")
P = ParamSpec("P")
R = TypeVar("R")


class WorkerGroup(Generic[W]):
    """An actor of the class W for each process of one role.

    Calls take an unbound method of W: `group.all(TrainWorker.load_models)`. All actors run it at the same time. The
    first error of any actor is raised here.
    """

    def __init__(self, worker: type[W], config: TrainingConfig, pods: Pods) -> None:
        """Start `worker(config, rank, world_size)` in every process, once Ray has the resources."""
        self.placement_group = reserve_pods(pods)
        self.pods = pods
        world_size = pods.count * pods.processes
        self.actors: list[Any] = [
            start_actor(
                worker,
                (config, rank, world_size),
                placement_group=self.placement_group,
                pod=rank // pods.processes,
                cpus=pods.threads,
                devices=min(1, pods.devices),
                threads=pods.threads,
            )
            for rank in range(world_size)
        ]

    def __len__(self) -> int:
        return len(self.actors)

    def pod_names(self) -> list[str]:
        """Return the pod of each actor, whether the actor answers or not. (A pod's host name is its name.)"""
        hosts = find_hosts(self.placement_group)
        return [hosts[rank // self.pods.processes] for rank in range(len(self))]

    def submit(
        self, method: Callable[Concatenate[W, P], R], *arguments: P.args, **options: P.kwargs
    ) -> list[ObjectRef[R]]:
        """Start the method in every actor with the same arguments. `results` waits for the references."""
        return [submit(actor, method, *arguments, **options) for actor in self.actors]

    def all(self, method: Callable[Concatenate[W, P], R], *arguments: P.args, **options: P.kwargs) -> list[R]:
        """Call the method in every actor with the same arguments. Return the results by rank."""
        return results(self.submit(method, *arguments, **options))

    def each(self, method: Callable[Concatenate[W, ...], R], *columns: Sequence[Any]) -> list[R]:
        """Call the method in every actor with its own arguments: each of `columns` has one element for each rank."""
        by_rank = zip(self.actors, *columns, strict=True)
        return results([submit(actor, method, *arguments) for actor, *arguments in by_rank])

    def first(self, method: Callable[Concatenate[W, P], R], *arguments: P.args, **options: P.kwargs) -> R:
        """Call the method in the actor of rank 0."""
        return results([submit(self.actors[0], method, *arguments, **options)])[0]
