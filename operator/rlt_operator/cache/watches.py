"""The reflectors of the cache: of the cluster, and of each selected namespace, which may come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.shards import ALL, Shard
from rlt_operator.cache.reflector import Reflector
from rlt_operator.cache.store import Name, Store, get_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The namespaces whose jobs are reconciled: all of them by default."""

    names: tuple[str, ...] = ()
    """These namespaces only, whether they exist or not."""
    labels: str = ""
    """The namespaces with these labels only, as a label selector."""
    shard: Shard = ALL
    """Of these, the namespaces of a shard only."""

    @property
    def by_watch(self) -> bool:
        """Whether a watch of namespaces finds them."""
        return bool(self.labels) or (self.shard.total > 1 and not self.names)

    def list_names(self) -> tuple[str | None, ...]:
        """The namespaces by name, or None for all. Without a watch of namespaces."""
        return tuple(name for name in self.names if self.shard.has(name)) if self.names else (None,)

    def __str__(self) -> str:
        shard = f", shard {self.shard.number} of {self.shard.total}" if self.shard.total > 1 else ""
        return (self.labels or ", ".join(self.names) or "all") + shard


@dataclass
class Watches:
    """Which kinds are watched where, and how far."""

    build: Callable[[KubernetesApi, str | None], list[Reflector]]
    """Builds the reflectors of a namespace, or of all namespaces."""
    on_complete: Callable[[str | None], None]
    """Called when the stores contain all objects of the namespace, or of all namespaces."""
    on_removed: Callable[[str], None]
    """Called when a namespace is no longer selected."""
    of_cluster: list[Reflector] = field(default_factory=list)
    """Of cluster-scoped kinds."""
    of_namespaces: dict[str | None, list[Reflector]] = field(default_factory=lambda: {None: []})
    """By namespace, or under None for all namespaces."""

    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    async def run(self, api: KubernetesApi, selection: Selection) -> None:
        """Watch until cancelled."""
        self.of_namespaces = {}
        async with asyncio.TaskGroup() as group:
            if selection.by_watch:
                self.of_cluster.append(self._build_selector(api, group, selection))
            for reflector in self.of_cluster:
                group.create_task(reflector.run(api), name=f"watch {reflector.kind}")
            if not selection.by_watch:
                for namespace in selection.list_names():
                    self.of_namespaces[namespace] = self.build(api, namespace)
                    group.create_task(self._watch(api, namespace))

    async def wait(self) -> None:
        """Wait until every store contains a complete list."""
        for each in self.of_cluster:
            await each.synced.wait()
        for each in list(self._list_namespaced()):
            await each.synced.wait()

    def is_complete(self, namespace: str) -> bool:
        """Whether the namespace is selected, and the stores contain all of its objects."""
        found = self.of_namespaces.get(namespace, self.of_namespaces.get(None))
        return found is not None and all(each.synced.is_set() for each in found)

    def is_selected(self, namespace: str) -> bool:
        """Whether jobs of the namespace are reconciled."""
        return None in self.of_namespaces or namespace in self.of_namespaces

    def check(self, namespace: str) -> None:
        """Raise the ApiError of a kind that the API server does not let the operator list or watch in the namespace."""
        for each in (*self.of_cluster, *self._list_namespaced(namespace)):
            if each.error and each.error.rejected:
                raise ApiError(each.error.status, str(each.error))

    def count_unavailable(self) -> int:
        """Number of the selected namespaces in which the operator may not list or watch a kind."""
        return sum(
            any(each.error is not None and each.error.rejected for each in reflectors)
            for reflectors in self.of_namespaces.values()
        )

    def _list_namespaced(self, namespace: str | None = None) -> Iterator[Reflector]:
        for watched, reflectors in self.of_namespaces.items():
            if None in (watched, namespace) or watched == namespace:
                yield from reflectors

    def _build_selector(self, api: KubernetesApi, group: asyncio.TaskGroup, selection: Selection) -> Reflector:
        """The reflector of namespaces, whose changes start and stop the watches in a namespace."""
        store: Store[str] = Store(lambda manifest: str(manifest["metadata"]["uid"]), get_name)

        async def find_path() -> str:
            return api_paths.NAMESPACES

        def select(name: Name, manifest: Manifest | None) -> None:
            _, namespace = name
            if not selection.shard.has(namespace):
                return
            if store.get(name) is None:
                self._remove(namespace)
            elif namespace not in self.of_namespaces:
                log.info("namespace %s is selected", namespace)
                self.of_namespaces[namespace] = self.build(api, namespace)
                self._tasks[namespace] = group.create_task(self._watch(api, namespace))

        query = {"labelSelector": selection.labels} if selection.labels else {}
        return Reflector("namespaces", store, find_path, select, query)

    def _remove(self, namespace: str) -> None:
        log.info("namespace %s is no longer selected", namespace)
        self._tasks.pop(namespace).cancel()
        for each in self.of_namespaces.pop(namespace):
            each.synced.set()  # nothing waits for it any more
        self.on_removed(namespace)

    async def _watch(self, api: KubernetesApi, namespace: str | None) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self.of_namespaces[namespace]:
                group.create_task(each.run(api), name=f"watch {each.kind}")
            for each in self.of_namespaces[namespace]:
                await each.synced.wait()
            self.on_complete(namespace)
