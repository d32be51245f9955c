"""The cluster as a command sees it: one namespace, by the user's own rights."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from rlt_api.crd import KIND
from rlt_cli.failure import Failure
from rlt_cli.kube_context import KubeContext
from rlt_cli.output import say
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, NoConnectionError, connect_as_user, in_cluster
from rlt_core.names import JOB_LABEL
from rlt_core.ray_http import UnreachableError, ask

FIELD_MANAGER = "rlt"
"""Owner of the fields of a file that `rlt submit` hands in."""
RETRY_S = 2.0
"""Between attempts to reach an API server that is away."""

Result = TypeVar("Result")


class FieldConflictError(Exception):
    """Somebody else has set the fields since. `owners`: path of each field -> who."""

    def __init__(self, owners: Mapping[str, str]) -> None:
        super().__init__(", ".join(f"{field} (set by {owner})" for field, owner in owners.items()))
        self.owners = owners


@dataclass(frozen=True)
class Connection:
    """An API server and a namespace."""

    api: KubernetesApi
    namespace: str
    place: KubeContext
    """As the user said it."""

    async def jobs(self, *, everywhere: bool = False, selector: str | None = None) -> list[Manifest]:
        """All jobs of the namespace, or of all namespaces, that have these labels."""
        query = {"labelSelector": selector} if selector else {}
        found = await self.api.list(api_paths.jobs(None if everywhere else self.namespace), **query)
        return [shown(job) for job in found]

    async def job(self, name: str) -> Manifest:
        """One job. Raises Failure where there is none."""
        found = await self.api.get(api_paths.job(self.namespace, name))
        if found is None:
            raise Failure(
                f"There is no RLTrainingJob {name} in namespace {self.namespace}.",
                next=self.place.rlt("get"),
            )
        return shown(found)

    async def pods(self, name: str) -> list[Manifest]:
        """The job's pods, its head first."""
        pods = await self.api.list(api_paths.pods(self.namespace), labelSelector=f"{JOB_LABEL}={name}")
        return sorted(map(shown, pods), key=lambda pod: (not is_head(pod), pod["metadata"]["name"]))

    async def apply(self, manifest: Manifest, *, force: bool) -> Manifest:
        """Server-side apply as FIELD_MANAGER; the object as it is then.

        Raises FieldConflictError where it would change what others have set. With `force` their fields become ours.
        """
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "force": str(force).lower()}
        metadata = manifest["metadata"]
        job = manifest["kind"] == KIND
        status, text = await self.api.send(
            "PATCH",
            api_paths.job(metadata["namespace"], metadata["name"]) if job else api_paths.runtime(metadata["name"]),
            query=query,
            body=manifest,
            content="application/apply-patch+yaml",
        )
        if status == 409 and (owners := _owners(text)):
            raise FieldConflictError(owners)
        return _object(status, text)

    async def patch_spec(self, name: str, change: dict[str, Any], *, by: str) -> Manifest:
        """Change fields of a job's spec, as their owner `by`; the job as it is then."""
        path, query, body = api_paths.job(self.namespace, name), {"fieldManager": by}, {"spec": change}
        return _object(
            *await self.api.send("PATCH", path, query=query, body=body, content="application/merge-patch+json")
        )

    async def changes(self, name: str) -> AsyncIterator[Manifest]:
        """The job now, and again at each change of it. Ends when it is deleted.

        It outlives an API server that is away for a while, and says that it waits for it.
        """
        uid, seen, away = (await self.job(name))["metadata"]["uid"], None, False
        path, which = api_paths.jobs(self.namespace), {"fieldSelector": f"metadata.name={name}"}
        while True:
            try:
                # The list's version, not the job's: that may be older than what the API server remembers.
                found, version = await self.api.list_with_version(path, **which)
                away = False
                if not found or found[0]["metadata"]["uid"] != uid:
                    return
                if found[0]["metadata"]["resourceVersion"] != seen:
                    seen = found[0]["metadata"]["resourceVersion"]
                    yield shown(found[0])
                async for kind, job in self.api.watch(path, resourceVersion=version, **which):
                    if kind == "DELETED":
                        return
                    seen = job["metadata"]["resourceVersion"]
                    yield shown(job)
            except ApiError as error:
                if error.refused and error.status != 410:
                    raise
                if not away:
                    say(f"waiting for the API server: {error}")
                away = True
                await asyncio.sleep(RETRY_S)

    async def head(self, name: str, port: int, path: str) -> str:
        """What the job's head answers. Raises Failure, with a way to go on, where it does not."""
        try:
            status, text = await ask(self.api, self.namespace, name, "GET", port, path)
        except UnreachableError as error:
            raise await self._no_head(name, str(error)) from error
        if status == 404 and text.startswith("here are "):
            words = f"{name}'s program serves no {path.partition('?')[0]}; rlt's own trainer does."
            raise Failure(words, next=self.place.rlt(f"logs {name}"))
        if status != 200:  # its own words, such as that there is nothing yet
            raise Failure(f"{name}: {text.strip() or f'HTTP {status}'}", next=self.place.rlt(f"status {name}"))
        return text

    async def _no_head(self, name: str, reason: str) -> Failure:
        job = await self.job(name)
        status = job.get("status", {})
        if status.get("rayCluster"):
            return Failure(f"{name}'s head does not answer: {reason}.", next=self.place.rlt(f"status {name}"))
        path = status.get("checkpoint", {}).get("path")
        where = f" What it wrote lies in its volume, beside {path}." if path else ""
        return Failure(f"{name} has no Ray cluster now.{where}", next=self.place.rlt(f"status {name}"))


@asynccontextmanager
async def connected(place: KubeContext) -> AsyncIterator[Connection]:
    """A connection as kubectl would make it. What goes wrong becomes a Failure."""
    files = (place.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
    if not in_cluster() and not any(Path(file).expanduser().exists() for file in files):
        words = f"There is no way to a cluster: {', '.join(files)} does not exist."
        raise Failure(words, next="export KUBECONFIG=FILE, or give --kubeconfig FILE")
    try:
        api, default = await connect_as_user(kubeconfig=place.kubeconfig, context=place.context)
        try:
            yield Connection(api, place.namespace or default, place)
        finally:
            await api.close()
    except NoConnectionError as error:
        raise Failure(f"There is no way to a cluster: {error}.", next="kubectl config get-contexts") from error
    except ApiError as error:
        raise _explained(error, place) from error


def run(coroutine: Coroutine[Any, Any, Result], *, detached: str | None = None) -> Result:
    """Run a command's coroutine. Ctrl-C ends it, and `detached` says what goes on without it."""
    try:
        return asyncio.run(coroutine)
    except KeyboardInterrupt:
        if detached is None:
            raise
        click.echo(f"\n{detached}", err=True)
        raise click.exceptions.Exit(130) from None


def _explained(error: ApiError, place: KubeContext) -> Failure:
    match error.status:
        case 0:
            return Failure(f"The API server does not answer: {error}.", next="kubectl cluster-info")
        case 401:
            return Failure("The API server does not know you: you are not logged in, or no longer.", next=WHO)
        case 403:
            return Failure(str(error), next=WHO)
        case 404:
            return Failure(f"This cluster knows no RLTrainingJob ({error}).", next=place.rlt("version --server"))
        case _:
            return Failure(str(error), next=place.rlt("get"))


WHO = "kubectl auth whoami"


def is_head(pod: Manifest) -> bool:
    """Whether it is the pod of Ray's head."""
    return bool(pod["metadata"].get("labels", {}).get("ray.io/node-type") == "head")


def shown(manifest: Manifest) -> Manifest:
    """As kubectl shows it: without metadata.managedFields."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    return {**manifest, "metadata": metadata}


def _object(status: int, text: str) -> Manifest:
    try:
        details: Manifest = json.loads(text)
    except ValueError as error:  # something between here and the API server
        raise ApiError(status, f"HTTP {status}: {text.strip()[:200]}") from error
    if status < 400:
        return shown(details)
    causes = [f"{cause['field']}: {cause['message']}" for cause in details.get("details", {}).get("causes", [])]
    raise ApiError(
        status, "\n".join([details.get("message", text), *causes]) if len(causes) > 1 else details["message"]
    )


def _owners(text: str) -> dict[str, str]:
    """Path of each field in conflict -> its owner. Empty for a 409 of another kind.

    A message is `conflict with "OWNER" using rlt.dev/v1alpha1 at …` (apimachinery/pkg/util/managedfields/internal).
    """
    causes = json.loads(text).get("details", {}).get("causes", [])
    conflicts = [cause for cause in causes if cause["reason"] == "FieldManagerConflict"]
    return {
        each["field"].removeprefix("."): each["message"].split('"')[1]
        for each in sorted(conflicts, key=lambda each: each["field"])
    }
