"""Access to the page of a cluster: a client needs a token that the API server accepts. Pure ASGI."""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlt_core.kubernetes.client import ApiError
from rlt_core.kubernetes.reviews import Person, Reviews
from rlt_ui.access import COOKIE, HEADERS, METHODS, is_cross_site, read_cookie

LOGIN = "/login"
SESSIONS = "/s"
"""The page of a login is at /s/RANDOM/: see `Login`."""
FORM = (Path(__file__).parent / "static" / "login.html").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(FORM.split("<style>")[1].split("</style>")[0].encode()).digest()).decode()
FORM_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",  # else the browser sends no Origin with the form
    "WWW-Authenticate": "Bearer",
}
MAX_FORM_BYTES = 2**16
MAX_COOKIE_LENGTH = 3800
"""Browsers keep cookies of up to 4096 bytes with their attributes (RFC 6265, section 6.1)."""
UNAVAILABLE = "The API server does not respond: the token cannot be checked. Try again later."
NO_TOKEN = "A bearer token of the cluster is required: it is missing, invalid or expired."
FIRST_VISIT = "Log in with a bearer token of the cluster."
REJECTED = "The token is invalid or expired."

_log = logging.getLogger(__name__)


class Login:
    """Answers 401 without a valid token, and adds HEADERS to each response.

    The token is in the header Authorization, or in a cookie that the form sets. Browsers send a cookie to every port of
    a host, and with a port-forward the host is the user's machine: each login has a random path, which limits its
    cookie. The application finds the person and the token in the state of the request.
    """

    def __init__(self, app: ASGIApp, reviews: Reviews) -> None:
        self._app = app
        self._reviews = reviews

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            app = await self._log_in(request) if is_login(request) else await self._admit(request)
        except ApiError as error:
            _log.warning("could not check a token: %s", error)
            app = PlainTextResponse(UNAVAILABLE, status_code=503)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                for key, value in HEADERS.items():
                    added.setdefault(key, value)
            await send(message)

        await app(scope, receive, send_with_headers)

    async def _admit(self, request: Request) -> ASGIApp:
        token = find_token(request.headers)
        person = await self._reviews.authenticate(token)
        if person is None:
            return reject(request)
        if request.method not in METHODS:
            return PlainTextResponse("The page is read-only.", status_code=403)
        if is_cross_site(request.headers):
            return PlainTextResponse("Pages of other sites cannot read this page.", status_code=403)
        request.state.person = person
        request.state.token = token
        return self._app

    async def _log_in(self, request: Request) -> Response:
        """Check the token of the form, and set the cookie of a new session."""
        origin = urlsplit(request.headers.get("origin", ""))
        if origin.netloc != request.headers.get("host", "") or origin.scheme not in ("http", "https"):
            return reject(request)
        token = await read_form_token(request)
        if len(token) > MAX_COOKIE_LENGTH or await self._reviews.authenticate(token) is None:
            return reject(request)
        page = f"{SESSIONS}/{secrets.token_urlsafe(16)}/"
        response = RedirectResponse(page, status_code=303)
        response.set_cookie(COOKIE, token, path=page, httponly=True, samesite="strict", secure=origin.scheme == "https")
        return response


def is_login(request: Request) -> bool:
    """Whether the request comes from the form."""
    return request.method == "POST" and request.url.path == LOGIN


def find_token(headers: Mapping[str, str]) -> str:
    """The token of the header Authorization, or else of the cookie. Empty if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme:
        return token.strip() if scheme.lower() == "bearer" else ""
    return read_cookie(headers.get("cookie", ""), COOKIE)


def get_reader(request: Request) -> tuple[Person, str]:
    """The person of an admitted request, and the token."""
    return request.state.person, request.state.token


async def read_form_token(request: Request) -> str:
    """The token of the form. Empty if it is missing or the form is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            return ""
    return parse_qs(body.decode("latin-1")).get("token", [""])[0].strip()


def reject(request: Request) -> Response:
    """Status 401: a browser gets the form, and any other program a text."""
    if "text/html" in request.headers.get("accept", ""):
        message = REJECTED if find_token(request.headers) or is_login(request) else FIRST_VISIT
        return HTMLResponse(FORM.replace("{message}", message), status_code=401, headers=FORM_HEADERS)
    return PlainTextResponse(NO_TOKEN, status_code=401, headers={"WWW-Authenticate": "Bearer"})
