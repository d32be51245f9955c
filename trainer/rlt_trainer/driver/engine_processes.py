"""The processes of the rollout engines, as Ray actors on the devices of train workers or in their own pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.actors import WorkerDiedError, call, kill, start_actor
from rlt_trainer.cluster.placement import is_reserved, reserve_each
from rlt_trainer.cluster.pods import Pods, rollout_pods
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.errors import TrainingError, root_cause
from rlt_trainer.rollout.engine import EngineDiedError
from rlt_trainer.workers.engine_part import EnginePart
from rlt_trainer.workers.rollout_worker import RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

P = ParamSpec("P")
R = TypeVar("R")


class EngineLostError(TrainingError):
    """An engine or its process has ended."""


class EngineProcess(Protocol):
    """One engine in its own process."""

    async def call(
        self, method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]], *arguments: P.args, **options: P.kwargs
    ) -> R:
        """Call a method of its RolloutWorker. Raises EngineLostError."""
        ...


class EngineProcesses(Protocol):
    """Starts the processes. Engine number i of N has the devices i * S to (i + 1) * S, S = tensorParallelSize."""

    def __len__(self) -> int: ...

    def start(self, number: int) -> EngineProcess:
        """Start the process of an engine, for the first time or again."""
        ...

    def has_pods(self, number: int) -> bool:
        """Return whether the pods of an engine have joined Ray. Until then, its process does not start."""
        ...


class ActorProcess:
    """An EngineProcess in a Ray actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def call(
        self, method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]], *arguments: P.args, **options: P.kwargs
    ) -> R:
        """As in EngineProcess."""
        try:
            return await call(self._actor, method, *arguments, **options)
        except WorkerDiedError as error:
            raise EngineLostError(str(error)) from error
        except EngineDiedError as error:  # Ray raises a RayTaskError that is also of its cause's class
            kill(self._actor)
            raise EngineLostError(str(root_cause(error))) from error


class ColocatedProcesses:
    """Engines on the devices of the train workers, in the same pods."""

    def __init__(self, config: TrainingConfig, workers: WorkerGroup[TrainWorker]) -> None:
        self._config = config
        self._workers = workers
        self._size = config.rollout.tensor_parallel_size

    def __len__(self) -> int:
        return len(self._workers) // self._size

    def start(self, number: int) -> EngineProcess:
        """As in EngineProcesses. Ray counts the devices for the train workers, which name them."""
        workers = self._workers
        pods = self._workers.pods
        first = number * self._size
        visible = self._visible_devices[first : first + self._size]
        variables = {name: ",".join(each[name] for each in visible) for name in visible[0]}
        actor = start_actor(
            RolloutWorker,
            (self._config, number),
            placement_group=workers.placement_group,
            pod=first // pods.processes,
            cpus=0,
            devices=0,
            threads=pods.threads,
            variables=variables,
        )
        return ActorProcess(actor)

    def has_pods(self, number: int) -> bool:
        """As in EngineProcesses: the workers have started there."""
        return True

    @cached_property
    def _visible_devices(self) -> list[dict[str, str]]:
        return self._workers.all(TrainWorker.visible_devices)


class SeparateProcesses:
    """Engines in pods that only generate: several in one pod, or one in several."""

    def __init__(self, config: TrainingConfig, pods: Pods, placement_groups: Sequence[Any]) -> None:
        """`placement_groups`: Ray's, of each of the `pods` (reserve_each)."""
        self._config = config
        self._pods = pods
        self._size = config.rollout.tensor_parallel_size
        self._placement_groups = placement_groups
        self._actors: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._pods.count * self._pods.processes // self._size

    def start(self, number: int) -> EngineProcess:
        """As in EngineProcesses."""
        pods = self._pods
        processes = min(self._size, pods.processes)
        start = partial(
            start_actor,
            pod=0,
            cpus=pods.threads * processes,
            devices=processes if pods.devices else 0,
            threads=pods.threads,
        )
        first, *others = self._select_groups(number)
        parts = [partial(start, EnginePart, (self._config,), placement_group=group) for group in others]
        actor = start(RolloutWorker, (self._config, number, parts), placement_group=first)
        self._actors[number] = actor
        return ActorProcess(actor)

    def has_pods(self, number: int) -> bool:
        """As in EngineProcesses."""
        return all(is_reserved(group) for group in self._select_groups(number))

    def _select_groups(self, number: int) -> Sequence[Any]:
        """Select the placement groups of an engine's pods."""
        first = number * self._size // self._pods.processes
        return self._placement_groups[first : first + max(1, self._size // self._pods.processes)]

    def end(self) -> None:
        """End the processes, so that others can have their devices."""
        for actor in self._actors.values():
            kill(actor)


def build_processes(config: TrainingConfig, workers: WorkerGroup[TrainWorker]) -> EngineProcesses:
    """Build the processes of rollout.mode: in own pods, of the most engines that the run may have."""
    if config.rollout.mode == "colocated":
        return ColocatedProcesses(config, workers)
    pods = replace(rollout_pods(config), count=config.max_rollout_workers or config.rollout_workers)
    return SeparateProcesses(config, pods, reserve_each(pods, minimum=config.min_rollout_workers))


@contextmanager
def open_processes(config: TrainingConfig, pods: Pods, placement_groups: Sequence[Any]) -> Iterator[EngineProcesses]:
    """Open the processes of engines in all `pods`, for one model. They end with the block."""
    processes = SeparateProcesses(config, pods, placement_groups)
    try:
        yield processes
    finally:
        processes.end()
