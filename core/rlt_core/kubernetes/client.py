"""The Kubernetes API: JSON in, JSON out. The only module that imports the Kubernetes client."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from rlt_core.job import Manifest
from rlt_core.kubernetes.fair_slots import FairSlots
from rlt_core.names import FIELD_OWNER

TIMEOUT = aiohttp.ClientTimeout(total=30, connect=10)

JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Accept header for the metadata of an object only."""
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for a list with the metadata of each object only."""

READ_COST = 1
WRITE_COST = 4
"""A write takes 2 to 14 ms of the API server and etcd, a read about 1.5 ms."""
PAGE_SIZE = 50
"""Objects in a page of a list. A page of 20 KB nodes has 1 MB and is parsed in 10 ms."""
METADATA_PAGE_SIZE = 200
"""Objects in a page of metadata. Each has about 5 KB, most of it managedFields."""
WATCH_S = 300
"""After this time the API server ends a watch."""
STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=10)
"""For streamed responses."""
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=WATCH_S + 30, connect=10, sock_read=120)
"""A watch without data for 120 s is broken: the API server sends a bookmark every minute."""

STRICT = "strict decoding error: "
"""Begins the cause in a message about unknown fields."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class ApiError(Exception):
    """A request failed. `status` is the HTTP status, or 0 without a response. The text is the API server's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def rejected(self) -> bool:
        """Whether the API server would reject the same request again."""
        return 400 <= self.status < 500 and self.status not in (408, 409, 429)


class UnknownResourceError(ApiError):
    """The API server does not have the resource: its CRD is not installed."""


class RequestOptions(TypedDict, total=False):
    """Options of a request."""

    query: dict[str, str]
    body: Manifest | Sequence[Manifest] | None
    content: str
    """Content type of the body. JSON by default."""
    accept: str
    """Content type of the response. JSON by default."""
    headers: dict[str, str]
    """More headers, which the API server's proxy forwards."""
    timeout: aiohttp.ClientTimeout


@dataclass
class KubernetesApi:
    """One connection pool to the API server."""

    client: Any  # kubernetes.aio's ApiClient, whose methods have no types
    renew: Callable[[], Awaitable[Any]] | None = None
    """Creates a client with the current credential. Called when the API server rejects the old one with status 401."""
    outdated: list[Any] = field(default_factory=list)
    """Previous clients. Their open requests continue."""
    large: dict[str, Manifest] = field(default_factory=dict)
    """Cache of get_large."""
    on_response: Callable[[str, str, int], None] = lambda method, path, status: None
    """Called with each response, the first one of a watch included."""
    on_warning: Callable[[str], None] = lambda text: None
    """Called with each warning of the API server: https://kubernetes.io/blog/2020/09/03/warnings/"""
    slots: FairSlots = field(default_factory=FairSlots)
    """Limits the requests at the same time, and shares them between namespaces. Watches do not count."""

    async def close(self) -> None:
        """Close all connections."""
        for each in (self.client, *self.outdated):
            await each.close()

    async def get(self, path: str) -> Manifest | None:
        """Get an object; None if it does not exist. Raises UnknownResourceError, ApiError."""
        status, text = await self.send("GET", path)
        if status != 404:
            manifest: Manifest = _parse_response(status, text)
            return manifest
        if _parse_details(text).get("name"):
            return None
        raise UnknownResourceError(status, _parse_message(text))

    async def get_large(self, path: str) -> Manifest | None:
        """Like `get`, for a large object that rarely changes: it is read again only if its generation differs."""
        status, text = await self.send("GET", path, query={"resourceVersion": "0"}, accept=METADATA)
        if status == 404:
            return None
        metadata = _parse_response(status, text)["metadata"]
        known = self.large.get(path)
        if known is None or any(known["metadata"][key] != metadata[key] for key in ("uid", "generation")):
            known = await self.get(path)
            if known is not None:
                self.large[path] = known
        return known

    async def list_with_version(self, path: str, **query: str) -> tuple[list[Manifest], str]:
        """The items of a list, and the resourceVersion at which a watch continues."""
        found = _parse_response(*await self.send("GET", path, query=query))
        return found["items"], found["metadata"]["resourceVersion"]

    async def list_pages(
        self, path: str, *, accept: str = JSON, **query: str
    ) -> AsyncIterator[tuple[list[Manifest], str]]:
        """The items of a list in pages, each with the resourceVersion at which a watch continues.

        A page has PAGE_SIZE items, or `limit`.

        Raises UnknownResourceError, ApiError; with status 410 if the list expires between two pages.
        """
        token = ""
        while True:
            page = {"limit": str(PAGE_SIZE)} | query | ({"continue": token} if token else {})
            status, text = await self.send("GET", path, query=page, accept=accept)
            if status == 404:
                raise UnknownResourceError(status, _parse_message(text))
            found = _parse_response(status, text)
            del text  # a page of nodes has several megabytes
            metadata = found["metadata"]
            yield found["items"] or [], metadata["resourceVersion"]
            token = metadata.get("continue") or ""
            if not token:
                return

    def list_metadata(self, path: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        """Like `list_pages`, but of each object only the metadata, in pages of METADATA_PAGE_SIZE."""
        return self.list_pages(path, accept=METADATA_LIST, limit=str(METADATA_PAGE_SIZE))

    async def list(self, path: str, **query: str) -> list[Manifest]:
        """The items of a list, selected by `labelSelector` or `fieldSelector`."""
        items, _ = await self.list_with_version(path, **query)
        return items

    async def apply(self, path: str, manifest: Manifest) -> Manifest:
        """Server-side apply, as owner of all the manifest's fields. Returns the object as stored.

        Raises UnknownResourceError, ApiError.
        """
        query = {"fieldManager": FIELD_OWNER, "force": "true"}
        content = "application/apply-patch+yaml"
        status, text = await self.send("PATCH", path, query=query, body=manifest, content=content)
        _raise_if_not_installed(status, text, manifest)
        applied: Manifest = _parse_response(status, text)
        return applied

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        """Create an object in the collection `path`. Returns the object as stored.

        Raises ApiError, with status 409 if it exists.
        """
        status, text = await self.send("POST", path, query={"fieldManager": FIELD_OWNER}, body=manifest)
        _raise_if_not_installed(status, text, manifest)
        created: Manifest = _parse_response(status, text)
        return created

    async def merge(self, path: str, patch: Manifest) -> None:
        """Apply a JSON merge patch (RFC 7386). Raises ApiError."""
        query = {"fieldManager": FIELD_OWNER}
        content = "application/merge-patch+json"
        _parse_response(*await self.send("PATCH", path, query=query, body=patch, content=content))

    async def patch(self, path: str, operations: Sequence[Manifest]) -> Manifest:
        """Apply a JSON Patch (RFC 6902). Unknown fields are an error. Returns the object as stored. Raises ApiError.

        An operation on /metadata/resourceVersion is a precondition: the status is 409 if the object is at another one.
        """
        query = {"fieldManager": FIELD_OWNER, "fieldValidation": "Strict"}
        content = "application/json-patch+json"
        status, text = await self.send("PATCH", path, query=query, body=operations, content=content)
        try:
            patched: Manifest = _parse_response(status, text)
        except ApiError as error:  # the message about an unknown field quotes the whole object before it
            _, strict, cause = str(error).rpartition(STRICT)
            raise ApiError(status, f"{strict}{cause}") from error
        return patched

    async def replace(self, path: str, manifest: Manifest) -> None:
        """Replace an object. Raises ApiError with status 409 if it is not at the manifest's resourceVersion."""
        _parse_response(*await self.send("PUT", path, query={"fieldManager": FIELD_OWNER}, body=manifest))

    async def dry_run(self, path: str, manifest: Manifest) -> None:
        """Validate the creation of an object, with an error for unknown fields. Nothing is stored."""
        query = {"fieldManager": FIELD_OWNER, "dryRun": "All", "fieldValidation": "Strict"}
        _parse_response(*await self.send("POST", path, query=query, body=manifest))

    async def delete(self, path: str, *, uid: str) -> None:
        """Delete the object if it has that uid. Its dependents are deleted in the background."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        status, text = await self.send("DELETE", path, body=body)
        if status not in (404, 409):
            _parse_response(status, text)

    async def delete_selected(self, path: str, **query: str) -> None:
        """Delete the objects of a collection that `labelSelector` and `fieldSelector` select. Raises ApiError."""
        _parse_response(*await self.send("DELETE", path, query=query))

    async def send(self, method: str, path: str, **options: Unpack[RequestOptions]) -> tuple[int, str]:
        """Status and text of the response, also of an error. Raises ApiError with status 0 without a response."""
        with _convert_connection_errors():
            async with self.slots.hold(READ_COST if method == "GET" else WRITE_COST):
                response = await self._request(method, path, **options)
                text = (await response.read()).decode(errors="replace")
        return response.status, text

    async def get_content(self, path: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """GET a path of any content through the API server's proxy, with more headers.

        Returns status, content type and body, also of an error. Raises ApiError with status 0 without a response.
        """
        with _convert_connection_errors():
            response = (await self._request("GET", path, accept="*/*", headers=headers)).response
            async with response:
                return response.status, response.headers.get("Content-Type", ""), await response.read()

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Changes since `resourceVersion`: ADDED, MODIFIED or DELETED and the object.

        Ends after `timeoutSeconds`, by default WATCH_S.

        With `allowWatchBookmarks` also BOOKMARK, whose object has only a resourceVersion. Raises ApiError, with
        status 410 if the resourceVersion has expired.
        """
        query = {"timeoutSeconds": str(WATCH_S), **query, "watch": "true"}
        async for line in self.stream_lines(path, query, timeout=WATCH_TIMEOUT):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
            yield event["type"], event["object"]

    async def stream_lines(
        self, path: str, query: dict[str, str], *, timeout: aiohttp.ClientTimeout = STREAM_TIMEOUT
    ) -> AsyncIterator[str]:
        """The lines of a streamed response, such as a followed log. Raises ApiError."""
        with _convert_connection_errors():
            response = (await self._request("GET", path, query=query, timeout=timeout)).response
            async with response:
                if response.status >= 400:
                    raise ApiError(response.status, _parse_message(await response.text(errors="replace")))
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line.decode(errors="replace")
                if rest:
                    yield rest.decode(errors="replace")

    @asynccontextmanager
    async def web_socket(
        self, path: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A web socket through the API server's proxy, with more headers. Raises ApiError."""
        _, url, headers, *_ = await self.client.param_serialize(
            "GET", path, header_params=dict(headers or {}), auth_settings=["BearerToken"]
        )
        rest = self.client.rest_client
        rest.pool_manager = rest.pool_manager or rest._create_pool_manager()
        with _convert_connection_errors():
            async with rest.pool_manager.ws_connect(url, headers=headers, max_msg_size=0) as socket:
                yield socket

    async def _request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Any:
        """The client's response. After a 401 the request is repeated once with a renewed credential."""
        headers = {"Content-Type": options.get("content", JSON), "Accept": options.get("accept", JSON)}
        headers |= options.get("headers", {})
        query = options.get("query")
        url = f"{path}?{urlencode(query)}" if query else path

        async def call(client: Any) -> Any:
            verb, address, full_headers, *_ = await client.param_serialize(
                method, url, header_params=dict(headers), auth_settings=["BearerToken"]
            )
            body = options.get("body")
            timeout = options.get("timeout", TIMEOUT)
            # param_serialize would search the body for types of the client, which takes half of its time.
            response = await client.call_api(verb, address, full_headers, body, _request_timeout=timeout)
            self.on_response(method, path, response.status)
            for header in response.response.headers.getall("Warning", []):
                self.on_warning(parse_warning(header))
            return response

        client = self.client
        response = await call(client)
        if response.status != 401 or self.renew is None:
            return response
        response.response.release()
        if client is self.client:
            renewed = await self.renew()
            self.outdated.append(self.client)
            self.client = renewed
        return await call(self.client)


def in_cluster() -> bool:
    """Whether this process runs in a pod and uses its service account."""
    return SERVICE_ACCOUNT.exists() and not os.environ.get("KUBECONFIG")


async def connect(user_agent: str) -> KubernetesApi:
    """Connect with the pod's service account, or outside a cluster with KUBECONFIG (default ~/.kube/config).

    The API server's audit log contains the user agent.
    """
    return _open(await _load_configuration(), user_agent)


async def connect_with_token(user_agent: str, token: str) -> KubernetesApi:
    """Connect to the API server of `connect` with a bearer token alone, without the credential of this process."""
    own = await _load_configuration()
    configuration = client.Configuration()
    for name in ("host", "verify_ssl", "ssl_ca_cert", "tls_server_name"):
        setattr(configuration, name, getattr(own, name))
    configuration.api_key = {"BearerToken": f"Bearer {token}"}
    return _open(configuration, user_agent)


async def _load_configuration() -> Any:
    configuration = client.Configuration()
    if in_cluster():
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        # The client reads its default for KUBECONFIG when it is imported.
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            os.environ.get("KUBECONFIG"), client_configuration=configuration, persist_config=False
        )
    return configuration


def _open(configuration: Any, user_agent: str) -> KubernetesApi:
    configuration.connection_pool_maxsize = 0  # no limit: each watch keeps a connection open
    configuration.client_session_kwargs = {"trust_env": False}  # else a thread reads ~/.netrc for each request
    connected = client.ApiClient(configuration)
    connected.user_agent = user_agent
    return KubernetesApi(connected)


class NoConnectionError(Exception):
    """No kubeconfig can be loaded. The text is the cause."""


async def connect_as_user(*, kubeconfig: str | None, context: str | None) -> tuple[KubernetesApi, str]:
    """Connect as kubectl does. Returns the connection and the namespace of the context.

    Uses a kubeconfig (default KUBECONFIG, then ~/.kube/config), or the service account in a pod without KUBECONFIG.
    When the credential expires, the kubeconfig is read again, with its credential plugin. Raises NoConnectionError.
    """
    if in_cluster() and not kubeconfig and not context:
        configuration = client.Configuration()
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return KubernetesApi(client.ApiClient(configuration)), SERVICE_ACCOUNT.with_name("namespace").read_text()

    async def load() -> tuple[Any, Any]:
        configuration = client.Configuration()
        # The client reads its default for KUBECONFIG when it is imported.
        file = kubeconfig or os.environ.get("KUBECONFIG")
        try:
            loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
                file, context, client_configuration=configuration, persist_config=False
            )
        except (config.ConfigException, OSError) as error:
            raise NoConnectionError(str(error)) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a field has another type than expected
            raise NoConnectionError(f"the kubeconfig is invalid: {type(error).__name__}: {error}") from error
        return client.ApiClient(configuration), loader

    async def renew() -> Any:
        renewed, _ = await load()
        return renewed

    first, loader = await load()
    return KubernetesApi(first, renew), loader.current_context["context"].get("namespace", "default")


def parse_warning(header: str) -> str:
    """The text of a Warning header, such as `299 - "the field \\"a\\" is deprecated"` (RFC 7234, section 5.5)."""
    _, _, quoted = header.partition('"')
    return re.sub(r"\\(.)", r"\1", quoted.rpartition('"')[0]) or header


@contextmanager
def _convert_connection_errors() -> Iterator[None]:
    try:
        yield
    except aiohttp.WSServerHandshakeError as error:
        raise ApiError(error.status, error.message) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ApiError(0, f"{type(error).__name__}: {error}") from error


def _parse_response(status: int, text: str) -> Any:
    if status >= 400:
        raise ApiError(status, _parse_message(text))
    return json.loads(text)


def _raise_if_not_installed(status: int, text: str, manifest: Manifest) -> None:
    if status == 404 and not _parse_details(text).get("name"):
        kind = manifest["kind"]
        version = manifest["apiVersion"]
        raise UnknownResourceError(status, f"the job needs {kind} ({version}), which is not installed")


def _parse_message(text: str) -> str:
    try:
        message: str = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text.strip()
    return message


def _parse_details(text: str) -> dict[str, Any]:
    try:
        details: dict[str, Any] = json.loads(text).get("details") or {}
    except (ValueError, AttributeError):
        return {}
    return details
