"""Worker processes as Ray actors, and typed calls of their methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import ray
from ray import ObjectRef
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.connections import describe_lost_connection
from rlt_trainer.cluster.pods import Pods
from rlt_trainer.cluster.worker_death import describe_death
from rlt_trainer.errors import TrainingError

RESOURCES_TIMEOUT_S = 600
"""How long to wait for the cluster's resources."""
DEATH_TIMEOUT_S = 5.0
"""How long to wait, after the first error, for Ray's report of a worker process that died."""

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
        nodes: dict[int, str] = placement_group_table(self.placement_group)["bundles_to_node_id"]
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
        return [hosts[nodes[rank // self.pods.processes]] for rank in range(len(self))]

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


def start_actor(
    worker: type[Any],
    arguments: tuple[Any, ...],
    *,
    placement_group: PlacementGroup,
    pod: int,
    cpus: int,
    devices: int,
    threads: int,
) -> Any:
    """Start an actor of the class in a pod of the placement group, with Ray's resources and OpenMP's threads."""
    actor: Any = ray.remote(worker)
    return actor.options(
        num_cpus=cpus,
        num_gpus=devices,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            placement_group=placement_group, placement_group_bundle_index=pod
        ),
    ).remote(*arguments)


def submit(actor: Any, method: Callable[..., R], *arguments: Any, **options: Any) -> ObjectRef[R]:
    """Start a method, given as the unbound method of the actor's class, in one actor."""
    reference: ObjectRef[R] = getattr(actor, method.__name__).remote(*arguments, **options)
    return reference


def wait(references: Any, timeout: float | None = None) -> tuple[Any, Any]:
    """Wait for one of the references. Return the lists of those that are done and of the others.

    Ray raises the exception of a signal handler, such as Terminated or KeyboardInterrupt, as the cause of a SystemError
    ("CoreWorker.wait returned a result with an exception set"; ray/_raylet.pyx, Ray 2.60). It is raised here itself.
    """
    try:
        done, pending = ray.wait(references, timeout=timeout)
    except SystemError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
    return done, pending


def results(references: Sequence[ObjectRef[R]]) -> list[R]:
    """Return the results of calls in order. Raise the first error when it happens: other calls may then never return.

    Raises TrainingError if a worker process died or lost its connection to another one, else the error of the call.
    """
    pending: Any = list(references)
    try:
        while pending:
            done, pending = wait(pending)
            ray.get(done)
        return list(ray.get(list(references)))
    except RayActorError as error:
        raise TrainingError(describe_death(str(error), list_pods())) from error
    except RayTaskError as error:
        lost = describe_lost_connection(str(error), list_pods())
        if lost and "timed out" in lost:  # the other process exists, or its node is lost
            raise TrainingError(lost) from error
        if death := _find_death(pending):
            raise TrainingError(describe_death(str(death), list_pods())) from error
        if lost:
            raise TrainingError(lost) from error
        raise


def _find_death(pending: Any) -> RayActorError | None:
    """Find a call whose worker process died. The other ranks lose their connections to it, and may fail earlier."""
    deadline = time.monotonic() + DEATH_TIMEOUT_S
    while pending and (left := deadline - time.monotonic()) > 0:
        done, pending = wait(pending, timeout=left)
        try:
            ray.get(done)
        except RayActorError as error:
            return error
        except RayTaskError:
            continue
    return None


def list_pods() -> dict[str, str]:
    """Return the pod of each address in the Ray cluster, also of nodes that Ray has lost."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeManagerAddress"]: node["NodeManagerHostname"] for node in nodes}


def reserve_pods(pods: Pods) -> PlacementGroup:
    """Reserve one bundle for each worker pod, spread over the nodes. Wait until Ray has the resources."""
    bundle = pods.bundle()
    group: PlacementGroup = placement_group([bundle] * pods.count, strategy="SPREAD")
    deadline = time.monotonic() + RESOURCES_TIMEOUT_S
    while not wait([group.ready()], timeout=10)[0]:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        available = {name: amount for name, amount in resources.items() if name in bundle}
        if time.monotonic() > deadline:
            raise TrainingError(
                f"Ray could not schedule {pods.count} {pods.role} workers of {bundle} within {RESOURCES_TIMEOUT_S} s: "
                f"the cluster has {available}. Check the worker pods: each must provide the resources in the spec."
            )
        print(f"[preparing] waiting for {pods.count} {pods.role} workers of {bundle}; Ray has {available}", flush=True)
    return group
