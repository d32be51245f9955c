"""A request for the policy's API, and the response to it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ApiCall:
    """A request of HTTP."""

    method: str
    path: str
    keys: tuple[str, ...]
    """The values of the headers that can have a key."""
    read_body: Callable[[], Awaitable[bytes]]
    """Returns the body. It can raise errors of the API."""


@dataclass(frozen=True)
class ApiResponse:
    """A response of HTTP."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200


Respond = Callable[[ApiCall], Awaitable[ApiResponse]]


def build_json_response(content: Any, status: int = 200) -> ApiResponse:
    """Build a response that is JSON."""
    return ApiResponse(json.dumps(content).encode(), status=status)
