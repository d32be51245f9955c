"""HTTP requests to a job's Ray head: Ray's job API and the trainer's /progress.

Inside the cluster they go to the head's service, outside through the API server's service proxy.
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
"""(job, method, port, path, body) -> status and text. Raises UnreachableError."""


class UnreachableError(Exception):
    """The head did not answer; the text says why."""


def through_service(session: aiohttp.ClientSession) -> Send:
    """Directly to the head's service, from a pod of the same cluster."""

    async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        url = f"http://{names.head_service(job.name)}.{job.namespace}.svc:{port}{path}"
        try:
            async with session.request(method, url, json=body, timeout=TIMEOUT) as response:
                return response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_plain(error)) from error

    return send


def through_api_server(api: KubernetesApi) -> Send:
    """By way of the API server, from anywhere. The operator's role in the cluster does not allow it."""

    async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        return await ask(api, job.namespace, job.name, method, port, path, body)

    return send


async def ask(
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
    """Status and text of what a job's head answers, by way of the API server. Raises UnreachableError."""
    proxy = api_paths.service_proxy(namespace, names.head_service(job), port)
    try:
        status, text = await api.send(method, proxy + path, body=body, timeout=timeout)
    except ApiError as error:
        raise UnreachableError(str(error)) from error
    if status >= 400 and '"kind":"Status"' in text:  # the API server's own answer
        raise UnreachableError(str(json.loads(text).get("message", text)))
    return status, text


def _plain(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
