"""Ray's actors: their start, typed calls of their methods, and the errors of processes that died.

The functions import Ray themselves: the training loop runs without it if no process is an actor.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rlt_trainer.cluster.connections import describe_lost_connection
from rlt_trainer.cluster.worker_death import describe_death
from rlt_trainer.errors import TrainingError

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.exceptions import RayActorError
    from ray.util.placement_group import PlacementGroup

DEATH_TIMEOUT_S = 5.0
"""How long to wait, after the first error, for Ray's report of a worker process that died."""

R = TypeVar("R")


class WorkerDiedError(TrainingError):
    """The process of a worker died."""


def start_actor(
    worker: type[Any],
    arguments: tuple[Any, ...],
    *,
    placement_group: PlacementGroup,
    pod: int,
    cpus: int,
    devices: int,
    threads: int,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Start an actor of the class in a pod of the placement group, with Ray's resources and OpenMP's threads.

    `variables`: environment variables of its process. With `devices`, Ray sets those that select devices itself. The
    constructor gets them as an argument: for a runtime_env, Ray would start a new process, and not use one that it has
    started with the pod (rlt_api/frameworks/builtin/prestart.py).
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    actor: Any = ray.remote(worker)
    return actor.options(
        num_cpus=cpus,
        num_gpus=devices,
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            placement_group=placement_group, placement_group_bundle_index=pod
        ),
    ).remote(*arguments, variables={"OMP_NUM_THREADS": str(threads), **(variables or {})})


def submit(actor: Any, method: Callable[..., R], *arguments: Any, **options: Any) -> ObjectRef[R]:
    """Start a method, given as the unbound method of the actor's class, in one actor."""
    reference: ObjectRef[R] = getattr(actor, method.__name__).remote(*arguments, **options)
    return reference


async def call(actor: Any, method: Callable[..., Awaitable[R]], *arguments: Any, **options: Any) -> R:
    """Call an asynchronous method in one actor. Raises WorkerDiedError if its process died, else the method's error."""
    from ray.exceptions import RayActorError

    try:
        result: Any = await submit(actor, method, *arguments, **options)
    except RayActorError as error:
        raise _describe(error) from error
    return result  # type: ignore[no-any-return]


def kill(actor: Any) -> None:
    """End the process of an actor. Calls in progress fail."""
    import ray

    ray.kill(actor)


def wait(references: Any, timeout: float | None = None, count: int = 1) -> tuple[Any, Any]:
    """Wait for `count` of the references. Return the lists of those that are done and of the others.

    Ray raises the exception of a signal handler, such as Terminated or KeyboardInterrupt, as the cause of a SystemError
    ("CoreWorker.wait returned a result with an exception set"; ray/_raylet.pyx, Ray 2.60). It is raised here itself.
    """
    import ray

    try:
        done, pending = ray.wait(references, num_returns=count, timeout=timeout)
    except SystemError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
    return done, pending


def results(references: Sequence[ObjectRef[R]]) -> list[R]:
    """Return the results of calls in order. Raise the first error when it happens: other calls may then never return.

    Raises WorkerDiedError if a worker process died, TrainingError if it lost its connection to another one, else the
    error of the call.
    """
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    pending: Any = list(references)
    try:
        while pending:
            done, pending = wait(pending)
            ray.get(done)
        return list(ray.get(list(references)))
    except RayActorError as error:
        raise _describe(error) from error
    except RayTaskError as error:
        lost = describe_lost_connection(str(error), list_pods())
        if lost and "timed out" in lost:  # the other process exists, or its node is lost
            raise TrainingError(lost) from error
        if death := _find_death(pending):
            raise _describe(death) from error
        if lost:
            raise TrainingError(lost) from error
        raise


def _find_death(pending: Any) -> RayActorError | None:
    """Find a call whose worker process died. The other ranks lose their connections to it, and may fail earlier."""
    import ray
    from ray.exceptions import RayActorError, RayTaskError

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
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeManagerAddress"]: node["NodeManagerHostname"] for node in nodes}


def _describe(error: RayActorError) -> WorkerDiedError:
    return WorkerDiedError(describe_death(str(error), list_pods()))
