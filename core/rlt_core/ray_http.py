"""HTTP requests to a job's Ray head: Ray's job API and the trainer's /progress.

The head is a pod of a tenant, which the operator does not trust. Inside the cluster a request goes to the IP of that
pod, follows no redirect and reads a bounded response that is not compressed. Outside the cluster it goes through the
API server's pod proxy. `rlt` uses the API server's service proxy with the rights of its user.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from rlt_core import names
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.token_key import TokenKey
from rlt_pod.report.driver_server import TOKEN_HEADER

TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)
MAX_RESPONSE_BYTES = 64 * 1024
"""Maximum size of a response, such as a progress report."""
MAX_LOG_BYTES = 256 * 1024
"""The end of a program's output that is kept."""
MAX_STREAM_BYTES = 32 * 1024 * 1024
"""Maximum number of bytes that are read to find the end of an output. Ray is asked for its last lines only."""


class UnreachableError(Exception):
    """The head did not respond. The text is the cause."""


class ResponseTooLargeError(UnreachableError):
    """The head's response exceeds its limit."""


@dataclass(frozen=True)
class Head:
    """The pod of a Ray head. It must belong to the job's RayCluster: other pods can have the job's labels."""

    namespace: str
    pod: str
    ip: str
    ray_token: str | None = None
    """Name of the Secret with the token that the head requires. None: it requires none."""
    job_uid: str = ""
    """Uid of the job."""


@dataclass(frozen=True)
class Request:
    """A request to a head, and how much of the response to read."""

    method: str
    port: int
    path: str
    body: dict[str, Any] | None = None
    max_bytes: int = MAX_RESPONSE_BYTES
    tail: bool = False
    """True: a longer response is cut to its last `max_bytes`. False: it raises ResponseTooLargeError."""


Send = Callable[[Head, Request], Awaitable[tuple[int, str]]]
"""Send a request. Returns status and text of the response. Raises UnreachableError."""


class RayTokens:
    """The tokens of Ray clusters, which are derived from the release's key: no Secret is read."""

    def __init__(self, key: TokenKey | None = None) -> None:
        self.key = key
        """None until it is loaded, before the first reconciliation."""

    def get_key(self) -> TokenKey:
        """The key. Raises RuntimeError before it is loaded."""
        if self.key is None:
            raise RuntimeError("the key for the tokens of Ray is not loaded")
        return self.key

    def get_headers(self, head: Head) -> dict[str, str]:
        """The headers that the head requires. Raises UnreachableError if its token is not one of the job."""
        if head.ray_token is None:
            return {}
        attempt = self.get_key().find_attempt(head.ray_token, head.job_uid)
        if attempt is None:
            raise UnreachableError(
                f"pod {head.pod} mounts Secret {head.ray_token}, which is not the job's token. After a change of the "
                "release's key, the job needs another attempt"
            )
        return {TOKEN_HEADER: f"Bearer {self.get_key().derive_token(head.job_uid, attempt)}"}


def to_pod_ip(session: aiohttp.ClientSession, tokens: RayTokens) -> Send:
    """Send requests to the head's IP, from a pod of the same cluster."""

    async def send(head: Head, request: Request) -> tuple[int, str]:
        host = f"[{head.ip}]" if ":" in head.ip else head.ip
        url = f"http://{host}:{request.port}{request.path}"
        headers = {"Accept-Encoding": "identity", **tokens.get_headers(head)}
        try:
            async with session.request(
                request.method, url, json=request.body, headers=headers, timeout=TIMEOUT, allow_redirects=False
            ) as response:
                if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
                    raise UnreachableError(
                        f"the response to {request.method} {request.path} is compressed: {encoding[:32]}"
                    )
                return response.status, await _read(response, request)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_describe_error(error)) from error

    return send


def through_pod_proxy(api: KubernetesApi, tokens: RayTokens) -> Send:
    """Send requests through the API server, from anywhere. The operator's role in the cluster does not allow it."""

    async def send(head: Head, request: Request) -> tuple[int, str]:
        path = api_paths.pod_proxy(head.namespace, head.pod, request.port) + request.path
        headers = tokens.get_headers(head)
        status, text = await _send_through_api_server(api, request.method, path, request.body, headers, TIMEOUT)
        if len(text) > request.max_bytes and not request.tail:
            raise ResponseTooLargeError(_describe_size(request))
        return status, text[-request.max_bytes :]

    return send


async def send_through_api_server(
    api: KubernetesApi,
    namespace: str,
    job: str,
    method: str,
    port: int,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    headers: dict[str, str] | None = None,
    timeout: aiohttp.ClientTimeout = TIMEOUT,
) -> tuple[int, str]:
    """Send a user's request to a job's head service. Returns status and text. Raises UnreachableError."""
    proxy = api_paths.service_proxy(namespace, names.head_service(job), port)
    return await _send_through_api_server(api, method, proxy + path, body, headers or {}, timeout)


async def _send_through_api_server(
    api: KubernetesApi,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    headers: dict[str, str],
    timeout: aiohttp.ClientTimeout,
) -> tuple[int, str]:
    try:
        status, text = await api.send(method, path, body=body, headers=headers, timeout=timeout)
    except ApiError as error:
        raise UnreachableError(str(error)) from error
    if status >= 400 and '"kind":"Status"' in text:  # an error of the API server, not of the head
        raise UnreachableError(str(json.loads(text).get("message", text)))
    return status, text


async def _read(response: aiohttp.ClientResponse, request: Request) -> str:
    """The text of a response, or its end. Holds at most twice `max_bytes` in memory."""
    limit = request.max_bytes
    read = 0
    kept = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        read += len(chunk)
        kept += chunk
        if read > (MAX_STREAM_BYTES if request.tail else limit):
            raise ResponseTooLargeError(_describe_size(request))
        if len(kept) > 2 * limit:
            del kept[:-limit]
    return kept[-limit:].decode(errors="replace")


def _describe_size(request: Request) -> str:
    limit = MAX_STREAM_BYTES if request.tail else request.max_bytes
    return f"the response to {request.method} {request.path} exceeds {limit} bytes"


def _describe_error(error: BaseException) -> str:
    return "timeout" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
