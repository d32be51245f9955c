"""Who may read the local page: the browser that has opened the printed URL, and no other site, user or machine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
HOST_NAMES = (HOST, "localhost")
METHODS = ("GET", "HEAD")
COOKIE = "rlt-ui"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Gate:
    """Rejects requests without the token, and adds HEADERS to each response.

    The URL of the page contains the token, and the response sets it as a cookie that scripts cannot read and that the
    browser does not send for other sites. Browsers send a cookie to every port of a host. `page`, the path of the page,
    is random and limits the cookie: another user's server on the machine does not get it.
    """

    def __init__(self, app: ASGIApp, token: str, page: str) -> None:
        self._app = app
        self._token = token
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. Anything but HTTP, such as a WebSocket, has no handler."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        opens = scope["path"] == self._page
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0] if opens else ""
        rejection = find_rejection(scope.get("method", ""), headers)
        kept = read_cookie(headers.get("cookie", ""), COOKIE)
        has_token = is_token(given, self._token) or is_token(kept, self._token)
        if rejection is None and not has_token:
            rejection = "Open the URL that `rlt ui` has printed: it contains a token."

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                for key, value in HEADERS.items():
                    added[key] = value
                if given and rejection is None:
                    added.append("Set-Cookie", f"{COOKIE}={self._token}; Path={self._page}; HttpOnly; SameSite=Strict")
            await send(message)

        app = self._app if rejection is None else PlainTextResponse(rejection, status_code=403)
        await app(scope, receive, send_with_headers)


def find_rejection(method: str, headers: Mapping[str, str]) -> str | None:
    """Return why a request is rejected: it would write, is for another host, or is from a page of another site."""
    if method not in METHODS:
        return "The page is read-only."
    host = headers.get("host", "")
    if urlsplit(f"//{host}").hostname not in HOST_NAMES:
        return f"The host {host} is not this machine: open http://{HOST}."
    if is_cross_site(headers):
        return "Pages of other sites cannot read this page."
    return None


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site sends the request. The user can follow a link from there."""
    navigates = headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not navigates


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return secrets.compare_digest(given.encode(), token.encode())


def read_cookie(header: str, name: str) -> str:
    """The value of a cookie. Empty if it is missing."""
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""
