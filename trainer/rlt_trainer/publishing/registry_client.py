"""Requests to an OCI registry, with the login that it asks for.

https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md
https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, parse_http_list, parse_keqv_list

TIMEOUT_S = 120
"""For a connection, and for each part of a request."""
LOOPBACK = ("127.0.0.1", "localhost")
"""Hosts without TLS, as for Docker."""
MAX_ANSWER = 2**20

Content = Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Answer:
    """The answer to a request, also one that reports an error."""

    status: int
    headers: Message
    body: bytes


class LoginError(ValueError):
    """The registry asks for credentials in a way that cannot be used."""


class NoRedirects(HTTPRedirectHandler):
    """A redirect is an answer: the credentials are for the registry alone."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        """Do not follow."""
        return None


class RegistryClient:
    """A client for one repository, with `credentials` as `user:password`."""

    def __init__(self, host: str, repository: str, credentials: str | None) -> None:
        scheme = "http" if host.partition(":")[0] in LOOPBACK else "https"
        self._server = f"{scheme}://{host}"
        self._base = f"{self._server}/v2/{repository}/"
        self._scope = f"repository:{repository}:pull,push"
        self._basic = f"Basic {base64.b64encode(credentials.encode()).decode()}" if credentials else None
        self._authorization: str | None = None
        self._opener = build_opener(NoRedirects)

    def send(
        self, method: str, path: str, content: Content | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request, after a login if the registry asks for one. `path`: in the repository, or a URL.

        Raises OSError without an answer, and LoginError.
        """
        url = urljoin(self._base, path)
        answer = self._send(method, url, content, headers)
        if answer.status == 401 and self._is_own(url):
            self._login(answer.headers.get("WWW-Authenticate", ""))
            answer = self._send(method, url, content, headers)
        return answer

    def _send(self, method: str, url: str, content: Content | None, headers: Mapping[str, str] | None) -> Answer:
        own = {"Authorization": self._authorization} if self._authorization and self._is_own(url) else {}
        return self._request(Request(url, content and content(), {**(headers or {}), **own}, method=method))

    def _request(self, request: Request) -> Answer:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return Answer(answer.status, answer.headers, answer.read(MAX_ANSWER))
        except HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read(MAX_ANSWER))
        except HTTPException as error:
            raise OSError(f"{error!r}") from error

    def _is_own(self, url: str) -> bool:
        return url.startswith(f"{self._server}/")

    def _login(self, challenge: str) -> None:
        """Answer a challenge: with the credentials, or with a token that another server issues for them."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            self._authorization = self._basic
        elif scheme.lower() == "bearer":
            self._authorization = f"Bearer {self._fetch_token(parse_keqv_list(parse_http_list(rest)))}"

    def _fetch_token(self, challenge: Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        if urlsplit(realm).scheme not in ("https", urlsplit(self._server).scheme):
            raise LoginError(f"its tokens are issued by {realm[:200]}, without TLS")
        query = {"scope": self._scope, **{key: challenge[key] for key in ("service",) if key in challenge}}
        headers = {"Authorization": self._basic} if self._basic else {}
        answer = self._request(Request(f"{realm}?{urlencode(query)}", headers=headers))
        if answer.status >= 500 or answer.status == 429:
            raise OSError(f"{realm[:200]} answers with status {answer.status}")
        try:
            found = json.loads(answer.body)
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise LoginError(f"{realm[:200]} issues no token (status {answer.status})") from None
