"""A server with OpenAI's and Anthropic's APIs for the agents of a run. Its model is the policy."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from aiohttp import web
from transformers import PreTrainedTokenizerBase

from rlt_trainer.environments.agent_transcript import AgentTranscript
from rlt_trainer.environments.anthropic_messages import CountRequest, MessagesRequest, build_anthropic_error
from rlt_trainer.environments.chat_completions import ChatRequest, build_models, build_openai_error
from rlt_trainer.environments.policy_request import (
    ApiRequest,
    PolicyRequest,
    PolicyTurn,
    RequestError,
    build_message,
    cut_text,
    parse_request,
)
from rlt_trainer.environments.responses import ResponsesRequest
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

ANTHROPIC = "/v1/messages"
APIS: dict[str, type[ApiRequest]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    ANTHROPIC: MessagesRequest,
}
"""Path -> body of its requests for a turn."""

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
        self._sampling_requests = 0
        self._running: set[asyncio.Task[None]] = set()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request for a turn. Raises RequestError."""
        with self._track():
            body = parse_request(await request.read(), APIS[request.path])
            turn = await self._sample(body.to_policy_request())
            if not body.stream:
                return web.json_response(body.build_response(turn))
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
            await response.prepare(request)
            for event in body.build_events(turn):
                await response.write(event.encode())
            return response

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """Respond with the number of tokens of a request. Raises RequestError."""
        with self._track():
            body = parse_request(await request.read(), CountRequest).to_policy_request()
        return web.json_response({"input_tokens": self.transcript.count_tokens(body.messages, body.tools)})

    async def _sample(self, request: PolicyRequest) -> PolicyTurn:
        pending = self.transcript.begin(request.messages, request.tools)
        limit = min(pending.max_tokens, request.max_tokens or pending.max_tokens)
        sampling = replace(self._sampling, stop=(*self._sampling.stop, *request.stop))
        try:
            with self._activity():
                seed = derive_seed(self._seed, pending.number)
                turn = await self._sampler.sample(pending.context, seed=seed, sampling=sampling, max_tokens=limit)
        except BaseException as error:  # CancelledError: the client has disconnected, or the episode has ended
            self.transcript.cancel(pending)
            if isinstance(error, EngineError) and not self.failed.done():
                self.failed.set_exception(error)
            raise
        whole = str(self._tokenizer.decode(list(turn.token_ids), skip_special_tokens=True))
        text, stop_text = cut_text(whole, request.stop)
        message = build_message(text, self._format, request, self._new_id)
        self.transcript.complete(pending, turn, message)
        tokens = [str(self._tokenizer.decode([token])) for token in turn.token_ids] if request.logprobs else ()
        return PolicyTurn(
            number=pending.number,
            created=int(time.time()),
            message=message,
            finish_reason="tool_calls" if "tool_calls" in message else turn.finish_reason,
            stop_text=stop_text,
            prompt_tokens=len(pending.context),
            completion_tokens=len(turn.token_ids),
            logprobs=list(zip(tokens, turn.log_probs, strict=True)) if request.logprobs else None,
        )

    @contextmanager
    def _track(self) -> Iterator[None]:
        """The end of the episode cancels a request also while its body arrives or its response is written."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            yield
        finally:
            self._running.discard(task)

    @contextmanager
    def _activity(self) -> Iterator[None]:
        self._sampling_requests += 1
        self.on_activity(True)
        try:
            yield
        finally:
            self._sampling_requests -= 1
            self.on_activity(bool(self._sampling_requests))

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
    """Set by `open_agent_server`. The paths of the APIs follow it."""

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
        """POST to a path of APIS"""
        return await self._find_episode(request).respond(request)

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages/count_tokens"""
        return await self._find_episode(request).count_tokens(request)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models"""
        self._find_episode(request)
        return web.json_response(build_models())

    async def reject_path(self, request: web.Request) -> web.StreamResponse:
        """Any other request"""
        fix = f"Use {', '.join(APIS)}, {ANTHROPIC}/count_tokens or /v1/models"
        raise RequestError(f"{request.method} {request.path} does not exist. {fix}.", "unknown_url", status=404)

    def _find_episode(self, request: web.Request) -> AgentEpisode:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        for key in (request.headers.get("x-api-key", ""), bearer):
            if episode := self._episodes.get(key):
                return episode
        fix = "Use OPENAI_API_KEY or ANTHROPIC_API_KEY"
        message = f"The API key does not belong to an episode, or its episode has ended. {fix}."
        raise RequestError(message, "invalid_api_key", status=401)


@asynccontextmanager
async def open_agent_server() -> AsyncIterator[AgentServer]:
    """Open a server on a free port of the loopback interface, in the current event loop."""
    server = AgentServer()
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_report_errors])
    for path in APIS:
        app.router.add_post(path, server.complete)
    app.router.add_post(f"{ANTHROPIC}/count_tokens", server.count_tokens)
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_route("*", "/{path:.*}", server.reject_path)
    # handler_cancellation: the response to a client that has disconnected must not become a turn.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_TIMEOUT_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0, backlog=BACKLOG).start()
        server.base_url = f"http://{HOST}:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@web.middleware
async def _report_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        message = f"The body has more than {MAX_BODY_BYTES} bytes. Send a shorter history."
        problem = RequestError(message, "request_too_large", status=413)
    except RequestError as error:
        problem = error
    except EngineError as error:  # ends the run
        raise web.HTTPInternalServerError from error
    build_error = build_anthropic_error if request.path.startswith(ANTHROPIC) else build_openai_error
    return web.json_response(build_error(problem), status=problem.status)
