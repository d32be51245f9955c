"""Kubernetes' API as the operator uses it: JSON in, JSON out. The only module that imports the Kubernetes client."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from rlt_core.job import Manifest
from rlt_core.names import FIELD_OWNER

TIMEOUT = aiohttp.ClientTimeout(total=30, connect=10)

JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What an answer is to be: the object, or its metadata alone."""

WATCH_S = 300
"""The API server ends a watch by itself then."""
STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=10)
"""For what comes bit by bit."""
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=WATCH_S + 30, connect=10)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class ApiError(Exception):
    """The API server did not do it. `status` is HTTP's, 0 if it could not be reached; the text is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def refused(self) -> bool:
        """Whether the same request would be refused again: the user should read why."""
        return 400 <= self.status < 500 and self.status not in (408, 409, 429)


class UnknownResourceError(ApiError):
    """The API server does not know the resource: its CRD is not installed."""


@dataclass
class KubernetesApi:
    """One connection pool to the API server."""

    client: Any  # kubernetes.aio's ApiClient, whose methods have no types
    renew: Callable[[], Awaitable[Any]] | None = None
    """Makes a client with the credential as it is now: asked once the API server takes the old one no longer."""
    outdated: list[Any] = field(default_factory=list)
    """The clients before. What they have begun goes on."""
    last_answer: float = field(default_factory=time.monotonic)
    """When the API server last answered (time.monotonic)."""
    large: dict[str, Manifest] = field(default_factory=dict)
    """The objects of get_large, as they were last read."""

    async def close(self) -> None:
        """End all connections."""
        for each in (self.client, *self.outdated):
            await each.close()

    async def get(self, path: str) -> Manifest | None:
        """The object; None if there is none. Raises UnknownResourceError if there is no such resource."""
        status, text = await self.send("GET", path)
        if status != 404:
            manifest: Manifest = _json(status, text)
            return manifest
        if _status_details(text).get("name"):
            return None
        raise UnknownResourceError(status, _message(text))

    async def get_large(self, path: str) -> Manifest | None:
        """As `get`, for a large object that seldom changes: read again only if its generation is another one."""
        status, text = await self.send("GET", path, query={"resourceVersion": "0"}, accept=METADATA)
        if status == 404:
            return None
        metadata, known = _json(status, text)["metadata"], self.large.get(path)
        if known is None or any(known["metadata"][key] != metadata[key] for key in ("uid", "generation")):
            known = await self.get(path)
            if known is not None:
                self.large[path] = known
        return known

    async def list_with_version(self, path: str, **query: str) -> tuple[list[Manifest], str]:
        """The items of a list, and the resourceVersion from which a watch goes on."""
        found = _json(*await self.send("GET", path, query=query))
        return found["items"], found["metadata"]["resourceVersion"]

    async def list(self, path: str, **query: str) -> list[Manifest]:
        """The items of a list, selected by `labelSelector` or `fieldSelector`."""
        items, _ = await self.list_with_version(path, **query)
        return items

    async def apply(self, path: str, manifest: Manifest) -> None:
        """Server-side apply, as the one owner of the fields that are named. Raises UnknownResourceError as `get`."""
        query = {"fieldManager": FIELD_OWNER, "force": "true"}
        content = "application/apply-patch+yaml"
        status, text = await self.send("PATCH", path, query=query, body=manifest, content=content)
        if status == 404 and not _status_details(text).get("name"):
            kind, version = manifest["kind"], manifest["apiVersion"]
            raise UnknownResourceError(status, f"this Kubernetes has no {kind} of {version}, which the job needs")
        _json(status, text)

    async def create(self, path: str, manifest: Manifest) -> None:
        """A new object, of a generated name for instance."""
        _json(*await self.send("POST", path, query={"fieldManager": FIELD_OWNER}, body=manifest))

    async def dry_run(self, path: str, manifest: Manifest) -> None:
        """What `create` would say, unknown fields included. Nothing is stored."""
        query = {"fieldManager": FIELD_OWNER, "dryRun": "All", "fieldValidation": "Strict"}
        _json(*await self.send("POST", path, query=query, body=manifest))

    async def delete(self, path: str, *, uid: str) -> None:
        """Delete the object if it is still the one with that uid; its dependents follow in the background."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        status, text = await self.send("DELETE", path, body=body)
        if status not in (404, 409):
            _json(status, text)

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Manifest | None = None,
        content: str = JSON,
        accept: str = JSON,
        timeout: aiohttp.ClientTimeout = TIMEOUT,
    ) -> tuple[int, str]:
        """Status and text of the answer, whatever it is. Raises ApiError with status 0 if there is none."""
        try:
            response = await self._request(
                method, path, query=query, body=body, content=content, accept=accept, timeout=timeout
            )
            text = (await response.read()).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"{type(error).__name__}: {error}") from error
        self.last_answer = time.monotonic()
        return response.status, text

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Changes from `resourceVersion` on: ADDED, MODIFIED or DELETED and the object. Ends after WATCH_S.

        Raises ApiError, with status 410 where so old a resourceVersion is no longer known.
        """
        query |= {"watch": "true", "timeoutSeconds": str(WATCH_S)}
        async for line in self.lines(path, query, timeout=WATCH_TIMEOUT):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
            yield event["type"], event["object"]

    async def lines(
        self, path: str, query: dict[str, str], *, timeout: aiohttp.ClientTimeout = STREAM_TIMEOUT
    ) -> AsyncIterator[str]:
        """An answer that comes bit by bit, such as a log that is followed. Raises ApiError."""
        try:
            response = (await self._request("GET", path, query=query, timeout=timeout)).response
            async with response:
                if response.status >= 400:
                    raise ApiError(response.status, _message(await response.text(errors="replace")))
                rest = b""
                async for chunk in response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line.decode(errors="replace")
                if rest:
                    yield rest.decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"{type(error).__name__}: {error}") from error

    @asynccontextmanager
    async def web_socket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A web socket to what the API server passes on to. Raises ApiError."""
        headers: dict[str, str] = {}
        _, url, headers, *_ = await self.client.param_serialize(
            "GET", path, header_params=headers, auth_settings=["BearerToken"]
        )
        rest = self.client.rest_client
        rest.pool_manager = rest.pool_manager or rest._create_pool_manager()
        try:
            async with rest.pool_manager.ws_connect(url, headers=headers, max_msg_size=0) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, error.message) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"{type(error).__name__}: {error}") from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Manifest | None = None,
        content: str = JSON,
        accept: str = JSON,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        headers = {"Content-Type": content, "Accept": accept}
        url = f"{path}?{urlencode(query)}" if query else path

        async def ask(client: Any) -> Any:
            request = await client.param_serialize(
                method, url, header_params=dict(headers), body=body, auth_settings=["BearerToken"]
            )
            return await client.call_api(*request, _request_timeout=timeout)

        client = self.client
        response = await ask(client)
        if response.status != 401 or self.renew is None:
            return response
        response.response.release()
        if client is self.client:
            fresh = await self.renew()
            self.outdated.append(self.client)
            self.client = fresh
        return await ask(self.client)


def in_cluster() -> bool:
    """Whether the operator runs as a pod of the cluster that it serves."""
    return SERVICE_ACCOUNT.exists() and not os.environ.get("KUBECONFIG")


async def connect() -> KubernetesApi:
    """A connection by the pod's service account, or by KUBECONFIG (default ~/.kube/config) outside a cluster."""
    configuration = client.Configuration()
    if in_cluster():
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
    return KubernetesApi(client.ApiClient(configuration))


class NoConnectionError(Exception):
    """There is no way to a cluster; the text says why."""


async def connect_as_user(*, kubeconfig: str | None, context: str | None) -> tuple[KubernetesApi, str]:
    """A connection as kubectl would make it, and the namespace that its context names.

    By a kubeconfig (default KUBECONFIG, then ~/.kube/config), or by the pod's service account where there is none. The
    kubeconfig is read again, its plugin asked again, when its credential has expired. Raises NoConnectionError.
    """
    if in_cluster() and not kubeconfig and not context:
        configuration = client.Configuration()
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return KubernetesApi(client.ApiClient(configuration)), SERVICE_ACCOUNT.with_name("namespace").read_text()

    async def load() -> tuple[Any, Any]:
        configuration = client.Configuration()
        # The client's own default for KUBECONFIG is of the time of its import.
        file = kubeconfig or os.environ.get("KUBECONFIG")
        try:
            loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
                file, context, client_configuration=configuration, persist_config=False
            )
        except (config.ConfigException, OSError) as error:
            raise NoConnectionError(str(error)) from error
        return client.ApiClient(configuration), loader

    async def renew() -> Any:
        fresh, _ = await load()
        return fresh

    first, loader = await load()
    return KubernetesApi(first, renew), loader.current_context["context"].get("namespace", "default")


def _json(status: int, text: str) -> Any:
    if status >= 400:
        raise ApiError(status, _message(text))
    return json.loads(text)


def _message(text: str) -> str:
    try:
        message: str = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text.strip()
    return message


def _status_details(text: str) -> dict[str, Any]:
    try:
        details: dict[str, Any] = json.loads(text).get("details") or {}
    except (ValueError, AttributeError):
        return {}
    return details
