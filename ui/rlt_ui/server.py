"""The server of the page: files of static/, and the records of runs as JSON. Read-only. `serve` is for one user."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from urllib.parse import quote, unquote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from rlt.errors import NotFoundError, RltError
from rlt.report.comparison import compare_runs
from rlt.report.summary import Origin
from rlt.runs.pages import MAX_PAGE, ORDERS, RolloutQuery
from rlt.runs.run import Run
from rlt.usage import GROUPS, MAX_DAYS
from rlt_ui.access import HOST, Gate
from rlt_ui.description import restore_run
from rlt_ui.report import STATIC, build_report
from rlt_ui.source import Json, Source, UsageQuery

POLL_S = 1.0
"""Interval between two versions of a run."""
LOG_POLL_S = 2.0
"""The same for a log."""
PING_POLLS = 5
"""Number of polls without a change after which an event shows that the connection exists."""
MAX_SEARCH_LENGTH = 200
MAX_COMPARED = 8
"""Maximum number of runs in a comparison: the number of colors."""
MAX_NUMBER = 2**53
"""Maximum integer of JavaScript."""


async def serve(source: Source, port: int, announce: Callable[[str], None], *, run: str | None = None) -> None:
    """Serve the page until Ctrl-C. `announce` gets its URL, of a run if it is given. `port` 0 selects a free one.

    Raises OSError if the port is in use.
    """
    token = secrets.token_urlsafe(32)
    page = f"/{secrets.token_urlsafe(16)}/"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()  # a browser can connect when it has the URL
        app = build_app(source, token, page, lambda: server.should_exit)
        config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=5, ws="none")
        server = uvicorn.Server(config)
        fragment = f"#/run/{quote(run, safe='')}" if run else ""
        announce(f"http://{HOST}:{listener.getsockname()[1]}{page}?token={token}{fragment}")
        await server.serve(sockets=[listener])


def build_app(source: Source, token: str, page: str, is_ending: Callable[[], bool] = lambda: False) -> ASGIApp:
    """Build the application at the path `page`, which admits requests with the token. `is_ending()` ends the events."""
    return Gate(
        Starlette(routes=[Mount(page.rstrip("/"), routes=build_routes(lambda _: source, is_ending))]), token, page
    )


def build_routes(get_source: Callable[[Request], Source], is_ending: Callable[[], bool]) -> list[BaseRoute]:
    """The page, its files, and the records of a request's source as JSON."""

    async def write_report(request: Request) -> Response:
        run = get_run(request)
        found = await get_source(request).load_run(run)
        origin = Origin(importlib.metadata.version("rlt"), f"{datetime.now(UTC):%FT%TZ}")
        text = await asyncio.to_thread(build_report, found, origin)
        name = quote(f"{build_file_name(found, run)}-report.html", safe="")
        return HTMLResponse(text, headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"})

    async def stream_log(request: Request) -> Response:
        source = get_source(request)
        run = request.query_params.get("run", "")
        log = request.query_params.get("log", "")
        events = stream_changes("log", lambda: source.read_log(run, log), LOG_POLL_S, is_ending)
        return StreamingResponse(events, media_type="text/event-stream")

    async def stream(request: Request) -> Response:
        versions = stream_versions(get_source(request), request.query_params.get("run"), is_ending)
        return StreamingResponse(versions, media_type="text/event-stream")

    async def show_page(_request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    routes = [Route(f"/api/{name}", answer_json(reader)) for name, reader in build_readers(get_source).items()]
    routes.append(Route("/api/report", answer(write_report)))
    streams = [Route("/api/events", stream), Route("/api/log", stream_log)]
    return [*routes, *streams, Route("/", show_page), Mount("/static", StaticFiles(directory=STATIC))]


def build_readers(get_source: Callable[[Request], Source]) -> dict[str, Callable[[Request], Awaitable[Json]]]:
    """Name below /api -> what reads the records of a request's source."""

    async def list_runs(request: Request) -> Json:
        source = get_source(request)
        return {"title": source.title, "hasUsage": source.has_usage, "runs": await source.list_runs()}

    async def read_usage(request: Request) -> Json:
        return await get_source(request).read_usage(build_usage_query(request))

    async def describe(request: Request) -> Json:
        return await get_source(request).describe(get_run(request))

    async def compare(request: Request) -> Json:
        source = get_source(request)
        found = [(await source.describe(run), await source.read_metrics(run)) for run in get_runs(request)]
        return {
            "runs": [{"info": described, "data": columns} for described, columns in found],
            "comparison": compare_runs([restore_run(*each) for each in found]).to_json(),
        }

    async def read_metrics(request: Request) -> Json:
        return await get_source(request).read_metrics(get_run(request))

    async def read_rollouts(request: Request) -> Json:
        return await get_source(request).read_rollouts(
            get_run(request), get_number(request, "step"), build_query(request)
        )

    async def read_spans(request: Request) -> Json:
        step = get_number(request, "step")
        if step is None:
            raise ValueError("step: pass a number.")
        return await get_source(request).read_spans(get_run(request), step)

    async def read_changes(request: Request) -> Json:
        return await get_source(request).read_changes(get_run(request))

    async def list_logs(request: Request) -> Json:
        return await get_source(request).list_logs(get_run(request))

    return {
        "runs": list_runs,
        "usage": read_usage,
        "run": describe,
        "compare": compare,
        "metrics": read_metrics,
        "rollouts": read_rollouts,
        "spans": read_spans,
        "changes": read_changes,
        "logs": list_logs,
    }


def answer_json(read: Callable[[Request], Awaitable[Json]]) -> Callable[[Request], Awaitable[Response]]:
    """A handler that returns JSON. See `answer`."""

    async def respond(request: Request) -> Response:
        return JSONResponse(await read(request))

    return answer(respond)


def answer(respond: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A handler that returns the response, or the reason why there is none with what to do next."""

    async def handle(request: Request) -> Response:
        try:
            return await respond(request)
        except ValueError as error:
            return JSONResponse({"error": str(error), "next": ""}, status_code=400)
        except NotFoundError as error:
            return JSONResponse({"error": error.message, "next": error.next}, status_code=404)
        except RltError as error:
            return JSONResponse({"error": error.message, "next": error.next}, status_code=502)

    return handle


def stream_versions(
    source: Source, run: str | None, is_ending: Callable[[], bool] = lambda: False
) -> AsyncIterator[str]:
    """Server-sent events: `version` when the run or the list has changed. See `stream_changes`."""
    return stream_changes("version", lambda: source.get_version(run), POLL_S, is_ending)


async def stream_changes(
    name: str, read: Callable[[], Awaitable[str | Json]], interval: float, is_ending: Callable[[], bool]
) -> AsyncIterator[str]:
    """Server-sent events: `name` with a value when it has changed, and `ping` when it has not for some time.

    `failure` contains the reason why the value cannot be read, and is repeated instead of `ping`.
    """
    last: tuple[str, str | Json] | None = None  # the version of a list without jobs is empty
    unchanged = 0
    while not is_ending():
        try:
            found: tuple[str, str | Json] = name, await read()
        except RltError as error:
            found = "failure", error.message
        unchanged += 1
        is_due = unchanged % PING_POLLS == 0
        if found != last or (is_due and found[0] == "failure"):
            yield f"event: {found[0]}\ndata: {json.dumps(found[1])}\n\n"
            last = found
            unchanged = 0
        elif is_due:
            yield "event: ping\ndata: {}\n\n"
        await asyncio.sleep(interval)


def get_run(request: Request) -> str:
    """The ID of the run. Raises ValueError."""
    run = request.query_params.get("run")
    if not run:
        raise ValueError("run: pass the ID of a run.")
    return run


def get_runs(request: Request) -> list[str]:
    """The IDs of the runs to compare: encoded, between commas. Raises ValueError."""
    runs = [unquote(each) for each in request.query_params.get("runs", "").split(",") if each]
    if not 1 <= len(runs) <= MAX_COMPARED:
        raise ValueError(f"runs: pass the IDs of 1 to {MAX_COMPARED} runs.")
    return runs


def build_file_name(found: Run, run: str) -> str:
    """NAMESPACE.NAME of a job, and the ID of a run directory: two runs of one job have different names."""
    namespace = found.details.get("namespace")
    return f"{namespace}.{found.name}" if namespace else run.replace("/", ".")


def get_number(request: Request, name: str) -> int | None:
    """A parameter that is a non-negative integer. None if it is missing. Raises ValueError."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > MAX_NUMBER:
        raise ValueError(f"{name}: {text[:20]}: pass a number of 0 or more.")
    return int(text)


def build_usage_query(request: Request) -> UsageQuery:
    """What a request adds up. Raises ValueError."""
    by = request.query_params.get("by", "namespace")
    if by not in GROUPS:
        raise ValueError(f"by: {by[:20]}: use {', '.join(GROUPS)}.")
    days = get_number(request, "days")
    if days is not None and days > MAX_DAYS:
        raise ValueError(f"days: {days}: use at most {MAX_DAYS}, as jobs keep {MAX_DAYS + 1} days.")
    return UsageQuery(by, days)


def build_query(request: Request) -> RolloutQuery:
    """The rollouts that a request selects. Raises ValueError."""
    wanted = request.query_params.get("order", ORDERS[0])
    order = next((each for each in ORDERS if each == wanted), None)
    if order is None:
        raise ValueError(f"order: {wanted[:20]}: use {', '.join(ORDERS)}.")
    return RolloutQuery(
        order=order,
        search=request.query_params.get("search", "")[:MAX_SEARCH_LENGTH],
        group=get_number(request, "group"),
        grouped=bool(get_number(request, "grouped")),
        offset=get_number(request, "offset") or 0,
        limit=min(get_number(request, "limit") or 20, MAX_PAGE),
    )
