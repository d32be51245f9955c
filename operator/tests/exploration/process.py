"""The operator's process: the real cache, reconciliation and API client. Its requests can fail, and it can crash.

Only the transport is replaced: requests to the API server and to Ray heads reach the model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, Unpack

from exploration.api_server import OF_KOPF, WATCHED, ApiServer, Change, parse
from exploration.failing_jobs import PlanError
from exploration.versions import VERSION

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi, RequestOptions
from rlt_core.ray_http import Head, RayTokens, Request, Send, UnreachableError
from rlt_core.token_key import TokenKey
from rlt_operator.cache.cache import Cache
from rlt_operator.cache.job_list import JobList
from rlt_operator.cache.reflector import Reflector
from rlt_operator.cache.store import Store, get_name, get_version
from rlt_operator.ray.poller import RayPoller, Target
from rlt_operator.reconcile.backoff import Failure
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.isolation import reconcile_isolated
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.unused_programs import delete_unused_programs
from rlt_operator.work_queue import Key

TOKENS = RayTokens(TokenKey(b"key"))
Write = tuple[str, str]
"""Method and path."""


class Crash(BaseException):
    """The process ends. Not an Exception, so that no code of the operator handles it."""


class Backend(Protocol):
    """What answers the requests."""

    server: ApiServer

    def ask_ray(self, head: Head, request: Request) -> tuple[int, str]:
        """The response of a Ray head. Raises UnreachableError."""


@dataclass
class Fault:
    """What happens at one request of a reconciliation."""

    at: int
    """The number of the write, or of the request with `of_all`, from 0."""
    before: Callable[[], None] = lambda: None
    """Called before the request. May raise Crash or ApiError."""
    after: Callable[[], None] = lambda: None
    """Called after the request, before its response. May raise Crash or ApiError."""
    of_all: bool = False
    """Whether `at` counts reads too."""


@dataclass
class Transport:
    """Carries the requests of one reconciliation."""

    backend: Backend
    fault: Fault | None = None
    writes: list[Write] = field(default_factory=list)
    """The writes, Events excluded."""
    requests: int = 0
    crashed: bool = False

    async def send(self, method: str, path: str, **options: Unpack[RequestOptions]) -> tuple[int, str]:
        query = options.get("query") or {}
        writes = method != "GET" and "dryRun" not in query and not path.endswith("/events")
        return self._carry(
            writes, method, path, lambda: self.backend.server.respond(method, path, query, options.get("body"))
        )

    async def send_to_ray(self, head: Head, request: Request) -> tuple[int, str]:
        try:
            return self._carry(
                request.method == "POST", request.method, request.path, lambda: self.backend.ask_ray(head, request)
            )
        except ApiError as error:
            raise UnreachableError(str(error)) from error

    def _carry(self, writes: bool, method: str, path: str, respond: Callable[[], tuple[int, str]]) -> tuple[int, str]:
        if self.crashed:
            raise Crash
        fault = self.fault
        if fault and fault.at != (self.requests if fault.of_all else len(self.writes) if writes else None):
            fault = None
        self.requests += 1
        try:
            if writes:
                self.writes.append((method, path))
            if fault:
                fault.before()
            response = respond()
            if fault:
                fault.after()
        except Crash:
            self.crashed = True
            raise
        return response


class Api(KubernetesApi):
    """The real client of the API server over a transport."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(client=None)
        self.send = transport.send  # type: ignore[method-assign]


class _Failures(Failures):
    """The real failures. An exception that no job of a user explains is a bug, and not only reported."""

    def log(self, key: Key, message: str, error: Exception | None = None) -> None:
        if error is not None and not isinstance(error, PlanError):
            raise error
        super().log(key, message, error)


class Poller(RayPoller):
    """The real poller without its timing: a head is asked when the explorer decides."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        super().__init__(send=_no_send, on_change=wake)

    async def _run(self, key: Key, target: Target) -> None:
        pass

    async def ask(self, key: Key, send: Send) -> bool:
        """Ask the head of the job. Returns whether its answer has changed."""
        target = self._targets.get(key)
        if target is None:
            return False
        self._send = send
        before = self._answers.get(key)
        answer = await self._ask(key, target, before)
        self._answers[key] = answer
        if answer != before:
            self._on_change(key)
        return answer != before

    def describe(self) -> str:
        """Targets and answers."""
        return repr((self._targets, self._answers))

    def fork(self, wake: Callable[[Key], None]) -> Poller:
        forked = Poller(wake)
        forked._targets = dict(self._targets)
        forked._answers = dict(self._answers)
        return forked


@dataclass
class Process:
    """The operator's process and the only job that it works on."""

    key: Key
    woken: bool = True
    timer: float | None = None
    """When the job is requeued, on the clock of the cluster."""
    idle_at: int | None = None
    """The resourceVersion of the server at which a reconciliation of the present view wrote nothing."""
    newer: bool = False
    """Whether it is the newer version of the operator."""

    def __post_init__(self) -> None:
        self.cache = Cache(self.wake)
        self.poller = Poller(self.wake)
        cache = self.cache
        stores = (cache.jobs, cache.ray_clusters, cache.pods, cache.configs, cache.programs, cache.nodes)
        self._stores: dict[str, Store[Any]] = dict(zip(WATCHED, stores, strict=True))
        self.failures: dict[Key, Failure] = {}
        """The failures that the process backs off from."""
        self.quarantine: dict[Key, Failure] = {}
        """The jobs that the process cannot plan."""
        self.reported: set[str] = set()
        """Uids of the jobs whose earlier events the process has restored."""

    def wake(self, key: Key) -> None:
        if key == self.key:
            self.woken = True
            self.idle_at = None

    def fork(self) -> Process:
        forked = Process(self.key, self.woken, self.timer, self.idle_at, self.newer)
        forked.copy_watches(self)
        forked.cache.written = set(self.cache.written)
        forked.cache.counted = set(self.cache.counted)
        forked.cache.waiting_for_nodes = set(self.cache.waiting_for_nodes)
        forked.poller = self.poller.fork(forked.wake)
        forked.failures = dict(self.failures)
        forked.quarantine = dict(self.quarantine)
        forked.reported = set(self.reported)
        return forked

    def copy_watches(self, other: Process) -> None:
        """Let the watches be as far as another process's."""
        for resource, store in other._stores.items():
            _copy_store(store, self._stores[resource])
        self.cache._kuberay_acted = dict(other.cache._kuberay_acted)

    def forget(self, resource: str, objects: Iterable[Manifest]) -> None:
        """Drop objects that the watch has not delivered, and that the process knows from responses."""
        for manifest in objects:
            self._stores[resource]._remove(get_name(manifest))

    async def lead(self, transport: Transport) -> None:
        """What the operator does when it becomes the leader, besides the reconciliations."""
        VERSION.use(self.newer)
        await delete_unused_programs(Api(transport), self.cache)

    def describe(self) -> list[str | int]:
        """The cache and the answers of the poller, as texts and resourceVersions."""
        parts: list[str | int] = []
        for resource in WATCHED:
            for name, entry in sorted(self._stores[resource]._entries.items()):
                parts += [name[1], entry.version, entry.value if isinstance(entry.value, str) else repr(entry.value)]
            parts.append(repr(self._stores[resource].select_removed(self.key)))
        rest = (self.cache.written, self.cache.counted, self.cache.waiting_for_nodes, self.cache.is_kuberay_active())
        return [*parts, self.poller.describe(), repr(rest)]

    async def reconcile(self, transport: Transport) -> None:
        """One reconciliation. Raises Crash."""
        VERSION.use(self.newer)
        api = Api(transport)
        sources = Sources(api, self.cache, self.poller, tokens=TOKENS)
        events = EventWriter(api)
        events._restored = self.reported
        failures = _Failures(api, self.cache, events, _describe_crds)
        failures._backoff._failures = self.failures
        failures._quarantine._failures = self.quarantine
        self.woken = False
        result = await reconcile_isolated(sources, transport.send_to_ray, events, failures, self.key)
        await events.flush()
        server = transport.backend.server
        self.timer = None if result.requeue_after is None else server.seconds + result.requeue_after
        self.idle_at = None if transport.writes else server.version

    def knows(self, resource: str, change: Change) -> bool:
        """Whether the cache already contains the change, so that its delivery has no effect."""
        kind, text = change
        if kind == "LIST":
            return False
        manifest = parse(text)
        known = self._stores[resource]._entries.get(get_name(manifest))
        version = get_version(manifest)
        if kind == "DELETED":
            return known is None or known.version > version
        return known is not None and known.version >= version

    async def deliver(self, resource: str, changes: tuple[Change, ...]) -> None:
        """Let the reflector of the resource, or kopf's handler, receive the changes."""
        if resource == OF_KOPF:
            await self._deliver_jobs(changes)
            return
        wake = {
            "rayclusters": self.cache._wake_self,
            "programs": self.cache._wake_all_of_namespace,
            "nodes": self.cache._wake_for_node,
        }.get(resource, self.cache._wake_labelled)
        reflector = Reflector(resource, self._stores[resource], _find_no_path, wake)
        if changes and changes[0][0] == "LIST":
            await reflector._list(_Watch(changes[:1]), "")  # type: ignore[arg-type]
            changes = changes[1:]
        await reflector._watch(_Watch(changes), "")  # type: ignore[arg-type]

    async def _deliver_jobs(self, changes: tuple[Change, ...]) -> None:
        jobs = JobList(self.cache.jobs, self.cache._wake_self, None, _select_nothing)
        for change, text in changes:
            if change == "LIST":
                await jobs._list(_Watch(((change, text),)), "")  # type: ignore[arg-type]
            else:
                jobs.receive(None if change == "LISTED" else change, json.loads(text))

    async def ask_head(self, backend: Backend) -> bool:
        return await self.poller.ask(self.key, Transport(backend).send_to_ray)


@dataclass
class _Watch:
    """Answers the list and the watch of a reflector with recorded changes."""

    changes: tuple[Change, ...]

    async def list_pages(self, path: str, **query: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        listed = json.loads(self.changes[0][1])
        yield listed["items"], listed["metadata"]["resourceVersion"]

    async def list_metadata(self, path: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        listed = json.loads(self.changes[0][1])
        yield [{"metadata": item["metadata"]} for item in listed["items"]], listed["metadata"]["resourceVersion"]

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Manifest]]:
        for change, text in self.changes:
            yield change, json.loads(text)


def _copy_store(source: Store[Any], target: Store[Any]) -> None:
    target._entries = dict(source._entries)
    target._removed = {index: list(values) for index, values in source._removed.items()}
    target._reached = dict(source._reached)
    target._names = {index: set(names) for index, names in source._names.items()}
    target._namespaces = {namespace: dict(names) for namespace, names in source._namespaces.items()}


def _select_nothing(namespace: str | None, wanted: bool) -> None:
    """The model of the API server decides what kopf reports."""


async def _find_no_path() -> str:
    return ""


async def _describe_crds() -> None:
    return None


async def _no_send(head: Head, request: Request) -> tuple[int, str]:
    raise UnreachableError("not asked")
