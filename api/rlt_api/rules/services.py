"""URLs of services that the pods call: judges, MCP servers, environments, trackers."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from rlt_api.findings.finding import Finding, printable, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

ENDPOINTS = ("/chat/completions", "/completions", "/models", "/chat", "/responses", "/embeddings")
"""Paths below the base URL of OpenAI's API."""
OPENENV_URL = "spec.rollout.multiTurn.openenv.url"
LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def validate_judge_urls(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """judge.baseUrl is the URL above /chat/completions, to which the requests go, without a query."""
    for index, reward in enumerate(spec.rewards):
        if reward.judge is None:
            continue
        field = f"spec.rewards[{index}].judge.baseUrl"
        url = reward.judge.base_url
        base = url.split("?")[0].rstrip("/")
        for endpoint in ENDPOINTS:
            base = base.removesuffix(endpoint)
        if base != url.rstrip("/"):
            message = "is not a base URL: the requests go to /chat/completions below it"
            yield Finding(field, printable(url), message, f"use {base}", rule="judge-url", edits=use(field, base))


def validate_openenv_url(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """openenv.url is the URL above /ws, to which the connections go, without a query."""
    openenv = spec.rollout.multi_turn.openenv if spec.rollout.multi_turn else None
    if openenv is None:
        return
    base = openenv.url.split("?")[0].split("#")[0].rstrip("/").removesuffix("/ws").rstrip("/")
    if base != openenv.url.rstrip("/"):
        message = "is not the URL of the server: the connections go to /ws below it"
        edits = use(OPENENV_URL, base)
        yield Finding(OPENENV_URL, printable(openenv.url), message, f"use {base}", rule="openenv-url", edits=edits)


def list_urls(spec: RLTrainingJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each URL that the pods call."""
    wandb = spec.observability.wandb
    multi_turn = spec.rollout.multi_turn
    tools = multi_turn.tools if multi_turn else []
    urls = {
        **{
            f"spec.rewards[{index}].judge.baseUrl": each.judge.base_url
            for index, each in enumerate(spec.rewards)
            if each.judge
        },
        **{
            f"spec.rollout.multiTurn.tools[{index}].mcp.url": tool.mcp.url
            for index, tool in enumerate(tools)
            if tool.mcp
        },
        OPENENV_URL: multi_turn.openenv.url if multi_turn and multi_turn.openenv else None,
        "spec.observability.wandb.baseUrl": wandb.base_url if wandb else None,
        "spec.observability.wandb.proxy": wandb.proxy if wandb else None,
    }
    yield from ((field, url) for field, url in urls.items() if url)


def warn_urls(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about URLs that reach the pod itself, and base URLs without a version."""
    for field, url in list_urls(spec):
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
        except ValueError:  # an invalid port or address
            continue
        if host in LOCAL:
            yield (
                f"{field}: {printable(url)}: {host} is the pod itself, which runs no such server; use the name of a "
                "Service, such as http://judge.NAMESPACE:8000/v1"
            )
        elif field.endswith("judge.baseUrl") and parts.path in ("", "/"):
            yield (
                f"{field}: {printable(url)}: has no path, and servers with OpenAI's API have theirs below /v1; use "
                f"{printable(url.rstrip('/'))}/v1"
            )


RULES = (validate_judge_urls, validate_openenv_url)
