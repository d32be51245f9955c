"""Access to one namespace of a cluster, with the credentials of the user's kubeconfig."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rlt.errors import ClusterError, FieldConflictError, InvalidJobError, NotFoundError, UnavailableError
from rlt.kube_context import KubeContext
from rlt.kubeconfig import find_kubeconfig_problem
from rlt.program import program_name
from rlt_api.findings.masking import mask_json
from rlt_api.schema.crd import KIND
from rlt_core.children.ray_token import find_ray_token_name, parse_ray_token
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, NoConnectionError, connect_as_user, in_cluster
from rlt_core.names import CLAIM_KIND, JOB_LABEL
from rlt_core.ray_http import UnreachableError, send_through_api_server
from rlt_pod.report.driver_server import TOKEN_HEADER

FIELD_MANAGER = "rlt"
"""Field manager of `rlt submit`."""
LOG = logging.getLogger("rlt")
RETRY_S = 2.0
"""Interval between attempts to reach an unavailable API server."""


@dataclass(frozen=True)
class Connection:
    """An API server and a namespace."""

    api: KubernetesApi
    namespace: str
    kube_context: KubeContext
    """The user's options."""
    notify: Callable[[str], None] = LOG.warning
    """Gets a text when a request waits."""

    async def list_jobs(self, *, all_namespaces: bool = False, selector: str | None = None) -> list[Manifest]:
        """The jobs of the namespace or of all namespaces that match a label selector."""
        jobs, _ = await self.list_jobs_with_version(all_namespaces=all_namespaces, selector=selector)
        return jobs

    async def list_jobs_with_version(
        self, *, all_namespaces: bool = False, selector: str | None = None
    ) -> tuple[list[Manifest], str]:
        """As `list_jobs`, and the resourceVersion at which `watch_jobs` continues."""
        query = {"labelSelector": selector} if selector else {}
        path = api_paths.jobs(None if all_namespaces else self.namespace)
        jobs, version = await self.api.list_with_version(path, **query)
        return [prepare_output(job) for job in jobs], version

    def in_namespace(self, namespace: str | None) -> Connection:
        """The connection for another namespace; None: the same."""
        return self if namespace is None else replace(self, namespace=namespace)

    async def get_job(self, name: str) -> Manifest:
        """One job. Raises NotFoundError if it does not exist."""
        job = await self.api.get(api_paths.job(self.namespace, name))
        if job is None:
            raise NotFoundError(
                f"RLTrainingJob {name} does not exist in namespace {self.namespace}.",
                next=self.kube_context.command_line("get"),
            )
        return prepare_output(job)

    async def watch_jobs(
        self, version: str, *, all_namespaces: bool = False, selector: str | None = None
    ) -> AsyncIterator[Manifest]:
        """Yield a job after each of its changes since a resourceVersion, also the last state of a deleted job.

        If the API server is unavailable, it notifies and retries. After an interruption it yields all jobs.
        """
        query = {"labelSelector": selector} if selector else {}
        path = api_paths.jobs(None if all_namespaces else self.namespace)
        interrupted = False
        while True:
            try:
                if interrupted:
                    jobs, version = await self.list_jobs_with_version(all_namespaces=all_namespaces, selector=selector)
                    interrupted = False
                    for job in jobs:
                        yield job
                async for kind, job in self.api.watch(
                    path, resourceVersion=version, allowWatchBookmarks="true", **query
                ):
                    version = job["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        yield prepare_output(job)
            except ApiError as error:
                if error.rejected and error.status != 410:
                    raise
                if not interrupted and error.status != 410:
                    self.notify(f"waiting for the API server: {error}")
                interrupted = True
                await asyncio.sleep(RETRY_S)

    async def list_pods(self, name: str) -> list[Manifest]:
        """The pods of a job, the head first."""
        pods = await self.api.list(api_paths.pods(self.namespace), labelSelector=f"{JOB_LABEL}={name}")
        return sorted(map(prepare_output, pods), key=lambda pod: (not is_head(pod), pod["metadata"]["name"]))

    async def list_events(self, name: str) -> list[Manifest]:
        """The events of a job, the latest first."""
        return await self._list_events_of(KIND, name)

    async def list_all_events(self, name: str) -> list[Manifest]:
        """The events of a job, its RayCluster and its pods, the latest first. Raises NotFoundError without the job."""
        await self.get_job(name)
        pods = [pod["metadata"]["name"] for pod in await self.list_pods(name)]
        objects = [(KIND, name), ("RayCluster", name), *(("Pod", pod) for pod in pods)]
        found = await asyncio.gather(*(self._list_events_of(kind, each) for kind, each in objects))
        return sorted((event for events in found for event in events), key=get_event_time, reverse=True)

    async def _list_events_of(self, kind: str, name: str) -> list[Manifest]:
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        events = await self.api.list(api_paths.events(self.namespace), fieldSelector=selector)
        return sorted(map(prepare_output, events), key=get_event_time, reverse=True)

    def with_namespace(self, manifest: Manifest) -> Manifest:
        """The manifest with the namespace of the connection if it is a job or a PersistentVolumeClaim without one.
        Raises InvalidJobError if --namespace differs from its own."""
        metadata = dict(manifest["metadata"])
        if manifest["kind"] in (KIND, CLAIM_KIND):
            namespace = metadata.setdefault("namespace", self.namespace)
            if self.kube_context.namespace and namespace != self.kube_context.namespace:
                raise InvalidJobError(
                    f"{metadata['name']}: metadata.namespace: {namespace} does not match "
                    f"--namespace {self.kube_context.namespace}.",
                    next=f"{program_name()} submit --namespace {namespace} FILE",
                )
        return {**manifest, "metadata": metadata}

    async def find(self, manifest: Manifest) -> Manifest | None:
        """The stored object of a job or runtime. None if it does not exist."""
        stored = await self.api.get(_object_path(manifest))
        return prepare_output(stored) if stored else None

    async def apply(self, manifest: Manifest, *, force: bool, dry_run: bool = False) -> Manifest:
        """Server-side apply as FIELD_MANAGER. Returns the stored object; with `dry_run` the one that would be stored.

        Raises FieldConflictError if it would change a field of another field manager. `force` takes these fields over.
        """
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "force": str(force).lower()}
        if dry_run:
            query["dryRun"] = "All"
        status, text = await self.api.send(
            "PATCH",
            _object_path(manifest),
            query=query,
            body=manifest,
            content="application/apply-patch+yaml",
        )
        if status == 409 and (owners := _parse_conflicts(text)):
            next_command = self.kube_context.command_line("submit FILE --force-conflicts")
            raise FieldConflictError(manifest["metadata"]["name"], owners, next=next_command)
        return _parse_object(status, text)

    async def patch_job(self, name: str, patch: Manifest, *, field_manager: str) -> Manifest:
        """Apply a JSON merge patch to a job. Returns the stored job."""
        path = api_paths.job(self.namespace, name)
        query = {"fieldManager": field_manager}
        content = "application/merge-patch+json"
        return _parse_object(*await self.api.send("PATCH", path, query=query, body=patch, content=content))

    async def watch_job(self, name: str) -> AsyncIterator[Manifest]:
        """Yield the job now and after each change. Ends when the job is deleted.

        If the API server is unavailable, it notifies and retries.
        """
        uid = (await self.get_job(name))["metadata"]["uid"]
        seen = None
        unavailable = False
        path = api_paths.jobs(self.namespace)
        which = {"fieldSelector": f"metadata.name={name}"}
        while True:
            try:
                # Watch from the list's version: the job's own may be older than the API server's watch cache.
                found, version = await self.api.list_with_version(path, **which)
                unavailable = False
                if not found or found[0]["metadata"]["uid"] != uid:
                    return
                if found[0]["metadata"]["resourceVersion"] != seen:
                    seen = found[0]["metadata"]["resourceVersion"]
                    yield prepare_output(found[0])
                async for kind, job in self.api.watch(path, resourceVersion=version, **which):
                    if kind == "DELETED":
                        return
                    seen = job["metadata"]["resourceVersion"]
                    yield prepare_output(job)
            except ApiError as error:
                if error.rejected and error.status != 410:
                    raise
                if not unavailable:
                    self.notify(f"waiting for the API server: {error}")
                unavailable = True
                await asyncio.sleep(RETRY_S)

    async def get_from_head(self, name: str, port: int, path: str) -> str:
        """GET a path from the head of a job. Raises UnavailableError if the head does not return 200."""
        try:
            headers = await self.get_token_headers(name)
            status, text = await send_through_api_server(
                self.api, self.namespace, name, "GET", port, path, headers=headers
            )
        except UnreachableError as error:
            raise await self._explain_missing_head(name, str(error)) from error
        if status == 404 and text.startswith("available paths: "):
            message = f"The program of job {name} does not serve {path.partition('?')[0]}; rlt's trainer does."
            raise UnavailableError(message, next=self.kube_context.command_line(f"logs {name}"))
        if status != 200:  # the text is the server's reason, for example that no step has finished
            message = f"{name}: {text.strip() or f'HTTP {status}'}"
            raise UnavailableError(message, next=self.kube_context.command_line(f"status {name}"))
        return text

    async def get_token_headers(self, name: str) -> dict[str, str]:
        """The headers with which the head of a job admits a request. Empty without a head or a token."""
        head = next((pod for pod in await self.list_pods(name) if is_head(pod)), None)
        secret_name = find_ray_token_name(head) if head else None
        if secret_name is None:
            return {}
        job = await self.get_job(name)
        secret = await self.api.get(api_paths.secret(self.namespace, secret_name))
        token = parse_ray_token(secret, owner_uid=job["metadata"]["uid"]) if secret else None
        if token is None:
            message = f"Secret {secret_name} with the token of job {name} does not exist."
            raise UnavailableError(message, next=self.kube_context.command_line(f"status {name}"))
        return {TOKEN_HEADER: f"Bearer {token}"}

    async def _explain_missing_head(self, name: str, reason: str) -> UnavailableError:
        status = (await self.get_job(name)).get("status", {})
        if status.get("rayCluster"):
            message = (
                f"The head of job {name} does not respond: {reason}. If the cluster enforces NetworkPolicies, "
                "networkPolicy.clientCidrs of the chart must contain the addresses of the API server."
            )
        else:
            path = status.get("checkpoint", {}).get("path")
            where = f" Its files are in its volume, next to {path}." if path else ""
            message = f"Job {name} has no Ray cluster.{where}"
        return UnavailableError(message, next=self.kube_context.command_line(f"status {name}"))


@asynccontextmanager
async def connect(kube_context: KubeContext, notify: Callable[[str], None] = LOG.warning) -> AsyncIterator[Connection]:
    """Connect as kubectl does. Errors of the connection and of the API server become ClusterErrors."""
    with convert_api_errors(kube_context):
        connection = await open_connection(kube_context, notify)
        try:
            yield connection
        finally:
            await connection.api.close()


async def open_connection(kube_context: KubeContext, notify: Callable[[str], None] = LOG.warning) -> Connection:
    """As `connect`. The caller closes `api`, and converts later errors."""
    given = kube_context.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(file).expanduser() for file in given.split(os.pathsep) if file]
    next_command = "export KUBECONFIG=FILE, or pass --kubeconfig FILE"
    if not in_cluster() and not any(file.exists() for file in files):
        message = f"Cannot connect to a cluster: {', '.join(given.split(os.pathsep))} does not exist."
        raise ClusterError(message, next=next_command)
    if not in_cluster() and (problem := find_kubeconfig_problem(files, kube_context.context)):
        raise ClusterError(f"Cannot connect to a cluster: {problem}.", next=next_command)
    try:
        api, default = await connect_as_user(kubeconfig=kube_context.kubeconfig, context=kube_context.context)
    except NoConnectionError as error:
        raise ClusterError(f"Cannot connect to a cluster: {error}.", next="kubectl config get-contexts") from error
    api.on_warning = _print_once(notify)
    return Connection(api, kube_context.namespace or default, kube_context, notify)


def _print_once(notify: Callable[[str], None]) -> Callable[[str], None]:
    """Pass each of the API server's warnings on once, as kubectl does."""
    printed: set[str] = set()

    def show(text: str) -> None:
        if text not in printed:
            printed.add(text)
            notify(f"warning: {text}")

    return show


@contextmanager
def convert_api_errors(kube_context: KubeContext) -> Iterator[None]:
    """Errors of the API server become ClusterErrors with advice."""
    try:
        yield
    except ApiError as error:
        raise _explain_api_error(error, kube_context) from error


def _explain_api_error(error: ApiError, kube_context: KubeContext) -> ClusterError:
    match error.status:
        case 0:
            return ClusterError(f"The API server does not respond: {error}.", next="kubectl cluster-info")
        case 401:
            message = "The API server rejected your credentials: they are missing, invalid or expired."
            return ClusterError(message, next="kubectl auth whoami", status=401)
        case 403:
            return ClusterError(str(error), next="kubectl auth whoami", status=403)
        case 404:
            message = f"The RLTrainingJob CRD is not installed in this cluster ({error})."
            return ClusterError(message, next=kube_context.command_line("version --server"), status=404)
        case _:
            return ClusterError(str(error), next=kube_context.command_line("get"), status=error.status)


def is_head(pod: Manifest) -> bool:
    """Whether the pod is the Ray head."""
    return bool(pod["metadata"].get("labels", {}).get("ray.io/node-type") == "head")


def get_event_time(event: Manifest) -> str:
    """When the event was last observed, in RFC 3339."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def prepare_output(manifest: Manifest) -> Manifest:
    """The object without metadata.managedFields, as kubectl shows it, and with plain-text secrets masked."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    prepared: Manifest = mask_json({**manifest, "metadata": metadata})
    return prepared


def _object_path(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    if manifest["kind"] == KIND:
        return api_paths.job(metadata["namespace"], metadata["name"])
    if manifest["kind"] == CLAIM_KIND:
        return api_paths.pvc(metadata["namespace"], metadata["name"])
    return api_paths.runtime(metadata["name"])


def _parse_object(status: int, text: str) -> Manifest:
    """The object of a response. Raises ApiError with the API server's message and causes."""
    try:
        details: Manifest = json.loads(text)
    except ValueError as error:  # the response of a proxy
        raise ApiError(status, f"HTTP {status}: {text.strip()[:200]}") from error
    if status < 400:
        return prepare_output(details)
    causes = [f"{cause['field']}: {cause['message']}" for cause in details.get("details", {}).get("causes", [])]
    lines = [details.get("message", text), *(causes if len(causes) > 1 else ())]
    raise ApiError(status, "\n".join(lines))


def _parse_conflicts(text: str) -> dict[str, str]:
    """Path of each field in conflict -> its field manager. Empty if the 409 has another cause.

    A message is `conflict with "OWNER" using rlt.dev/v1alpha1 at …` (apimachinery/pkg/util/managedfields/internal).
    """
    causes = json.loads(text).get("details", {}).get("causes", [])
    conflicts = [cause for cause in causes if cause["reason"] == "FieldManagerConflict"]
    return {
        each["field"].removeprefix("."): each["message"].split('"')[1]
        for each in sorted(conflicts, key=lambda each: each["field"])
    }
