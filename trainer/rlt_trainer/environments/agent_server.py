"""A server with OpenAI's API for the agents of a run. Its model is the policy."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from transformers import PreTrainedTokenizerBase

from rlt_trainer.environments.agent_transcript import AgentTranscript
from rlt_trainer.environments.chat_completions import (
    RequestError,
    build_chunks,
    build_completion,
    build_message,
    build_models,
    parse_request,
)
from rlt_trainer.environments.tool_calls import Format
from rlt_trainer.rollout.engine import EngineError, Sampling, derive_seed
from rlt_trainer.rollout.sampler import Sampler

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 * 2**20
"""Maximum size of a request."""
BACKLOG = 1024
"""Number of connections that may wait to be accepted."""
CLOSE_TIMEOUT_S = 5.0
"""Time that requests have to end when the server closes."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AgentEpisode:
    """The requests of one episode, which the server gets with its key."""

    def __init__(
        self,
        sampler: Sampler,
        transcript: AgentTranscript,
        *,
        seed: int,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        format: Format,
    ) -> None:
        self.transcript = transcript
        self.on_activity: Callable[[bool], None] = lambda is_busy: None
        """Called when a request begins or ends, with whether requests are in progress."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the EngineError of a request."""
        self._sampler = sampler
        self._seed = seed
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._format = format
        self._calls = 0
        self._running: set[asyncio.Task[None]] = set()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request for a completion. Raises RequestError."""
        body = parse_request(await request.read())
        pending = self.transcript.begin(body.messages, body.schemas)
        limit = min(pending.max_tokens, body.limit or pending.max_tokens)
        try:
            with self._activity():
                seed = derive_seed(self._seed, pending.number)
                turn = await self._sampler.sample(pending.context, seed=seed, sampling=self._sampling, max_tokens=limit)
        except BaseException as error:  # CancelledError: the client has disconnected, or the episode has ended
            self.transcript.cancel(pending)
            if isinstance(error, EngineError) and not self.failed.done():
                self.failed.set_exception(error)
            raise
        text = str(self._tokenizer.decode(list(turn.token_ids), skip_special_tokens=True))
        message = build_message(text, self._format, bool(body.schemas), self._new_id)
        self.transcript.complete(pending, turn, message)
        tokens = [str(self._tokenizer.decode([token])) for token in turn.token_ids] if body.logprobs else None
        completion = build_completion(
            message,
            turn,
            number=pending.number,
            created=int(time.time()),
            prompt_tokens=len(pending.context),
            tokens=tokens,
        )
        if not body.stream:
            return web.json_response(completion)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        for chunk in build_chunks(completion, include_usage=include_usage):
            await response.write(chunk.encode())
        return response

    @contextmanager
    def _activity(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self.on_activity(True)
        try:
            yield
        finally:
            self._running.discard(task)
            self.on_activity(bool(self._running))

    def cancel(self) -> None:
        """Cancel the requests in progress."""
        self.failed.cancel()
        for task in self._running:
            task.cancel()

    def _new_id(self) -> str:
        self._calls += 1
        return f"call{self._calls:05d}"  # Mistral's templates require nine characters


class AgentServer:
    """Serves the episodes that are open, to processes on this machine."""

    base_url: str
    """Set by `open_agent_server`."""

    def __init__(self) -> None:
        self._episodes: dict[str, AgentEpisode] = {}

    @contextmanager
    def serve(self, episode: AgentEpisode) -> Iterator[str]:
        """Yield the API key of an episode. Afterwards its requests are cancelled, and further ones are rejected."""
        key = secrets.token_urlsafe(32)
        self._episodes[key] = episode
        try:
            yield key
        finally:
            del self._episodes[key]
            episode.cancel()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions"""
        return await self._find_episode(request).respond(request)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models"""
        self._find_episode(request)
        return web.json_response(build_models())

    async def reject_path(self, request: web.Request) -> web.StreamResponse:
        """Any other request"""
        fix = "use /v1/chat/completions (openai-agents: set_default_openai_api('chat_completions'))"
        raise RequestError(f"{request.method} {request.path} does not exist: {fix}.", "unknown_url", status=404)

    def _find_episode(self, request: web.Request) -> AgentEpisode:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        episode = self._episodes.get(key)
        if episode is None:
            message = "The API key does not belong to an episode, or its episode has ended. Use OPENAI_API_KEY."
            raise RequestError(message, "invalid_api_key", status=401)
        return episode


@asynccontextmanager
async def open_agent_server() -> AsyncIterator[AgentServer]:
    """Open a server on a free port of the loopback interface, in the current event loop."""
    server = AgentServer()
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_report_errors])
    app.router.add_post("/v1/chat/completions", server.complete)
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_route("*", "/{path:.*}", server.reject_path)
    # handler_cancellation: the response to a client that has disconnected must not become a turn.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_TIMEOUT_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0, backlog=BACKLOG).start()
        server.base_url = f"http://{HOST}:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        await runner.cleanup()


@web.middleware
async def _report_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return web.json_response(error.body, status=error.status)
    except EngineError as error:  # ends the run
        raise web.HTTPInternalServerError from error
