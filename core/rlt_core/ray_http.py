"""HTTP requests to a job's Ray head: Ray's job API and the trainer's /progress.

Inside the cluster they use the head's service, outside the API server's service proxy.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from rlt_core import names
from rlt_core.job import Job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi

TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)

Send = Callable[[Job, str, int, str, dict[str, Any] | None], Awaitable[tuple[int, str]]]
"""(job, method, port, path, body) -> status and text of the response. Raises UnreachableError."""


class UnreachableError(Exception):
    """The head did not respond. The text is the cause."""


def through_service(session: aiohttp.ClientSession) -> Send:
    """Send requests to the head's service, from a pod of the same cluster."""

    async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        url = f"http://{names.head_service(job.name)}.{job.namespace}.svc:{port}{path}"
        try:
            async with session.request(method, url, json=body, timeout=TIMEOUT) as response:
                return response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_describe_error(error)) from error

    return send


def through_api_server(api: KubernetesApi) -> Send:
    """Send requests through the API server, from anywhere. The operator's role in the cluster does not allow it."""

    async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        return await send_through_api_server(api, job.namespace, job.name, method, port, path, body)

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
    timeout: aiohttp.ClientTimeout = TIMEOUT,
) -> tuple[int, str]:
    """Send a request to a job's head through the API server. Returns status and text. Raises UnreachableError."""
    proxy = api_paths.service_proxy(namespace, names.head_service(job), port)
    try:
        status, text = await api.send(method, proxy + path, body=body, timeout=timeout)
    except ApiError as error:
        raise UnreachableError(str(error)) from error
    if status >= 400 and '"kind":"Status"' in text:  # an error of the API server, not of the head
        raise UnreachableError(str(json.loads(text).get("message", text)))
    return status, text


def _describe_error(error: BaseException) -> str:
    return "timeout" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
