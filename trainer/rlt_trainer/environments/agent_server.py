"""A server with OpenAI's and Anthropic's APIs for the agents of a run. Its model is the policy."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from aiohttp import web
from transformers import PreTrainedTokenizerBase

from rlt_trainer.environments.activity import Activity
from rlt_trainer.environments.agent_transcript import AgentTranscript, Placed
from rlt_trainer.environments.anthropic_messages import CountRequest, MessagesRequest, build_anthropic_error
from rlt_trainer.environments.chat_completions import ChatRequest, build_models, build_openai_error
from rlt_trainer.environments.conversation import read_tokens
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
from rlt_trainer.environments.tool_calls import number_call
from rlt_trainer.environments.turn_parser import TurnParser
from rlt_trainer.rollout.engine import EngineError, Sampling, derive_seed
from rlt_trainer.rollout.sampler import Sampler
from rlt_trainer.sandboxes.api_call import ApiCall, ApiResponse, build_json_response

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 * 2**20
"""Maximum size of a request."""
MAX_LENGTH = 4096
"""Maximum number of characters that the event loop tokenizes itself, in about 4 ms. It is also the driver's."""
BACKLOG = 1024
"""Number of connections that may wait to be accepted."""
CLOSE_TIMEOUT_S = 5.0
"""Time that requests have to end when the server closes."""

ANTHROPIC = "/v1/messages"
COUNT = f"{ANTHROPIC}/count_tokens"
APIS: dict[str, type[ApiRequest]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    ANTHROPIC: MessagesRequest,
}
"""Path -> body of its requests for a turn."""


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
        parser: TurnParser,
    ) -> None:
        self.transcript = transcript
        self.activity = Activity()
        """Of requests for turns, without the time of their bodies."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the EngineError of a request."""
        self._sampler = sampler
        self._seed = seed
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._parser = parser
        self._calls = 0
        self._running: set[asyncio.Task[None]] = set()

    async def respond(self, call: ApiCall) -> ApiResponse:
        """Respond to a request for a turn. Raises RequestError, EngineError."""
        with self._track():
            body = parse_request(await call.read_body(), APIS[call.path])
            turn = await self._sample(body.to_policy_request())
        if body.stream:
            return ApiResponse("".join(body.build_events(turn)).encode(), "text/event-stream")
        return build_json_response(body.build_response(turn))

    async def count_tokens(self, call: ApiCall) -> ApiResponse:
        """Respond with the number of tokens of a request. Raises RequestError."""
        with self._track():
            body = parse_request(await call.read_body(), CountRequest).to_policy_request()
            placed = self.transcript.place(body.messages, body.tools)
            count = self.transcript.count_tokens(placed, await self._tokenize(placed))
        return build_json_response({"input_tokens": count})

    async def _sample(self, request: PolicyRequest) -> PolicyTurn:
        self.transcript.check_requests()
        placed = self.transcript.place(request.messages, request.tools)
        pending = self.transcript.begin(placed, await self._tokenize(placed))
        limit = min(pending.max_tokens, request.max_tokens or pending.max_tokens)
        sampling = replace(self._sampling, stop=(*self._sampling.stop, *request.stop))
        try:
            with self.activity.request():
                seed = derive_seed(self._seed, pending.number)
                turn = await self._sampler.sample(pending.context, seed=seed, sampling=sampling, max_tokens=limit)
                sampled = read_tokens(pending.context, turn.token_ids, sampling, self._tokenizer)
                parsed = await self._parser.parse(sampled, request.tools, stop=request.stop)
        except BaseException as error:  # CancelledError: the client has disconnected, or the episode has ended
            self.transcript.cancel(pending)
            if isinstance(error, EngineError) and not self.failed.done():
                self.failed.set_exception(error)
            raise
        text, stop_text = cut_text(sampled.text, request.stop)
        message = build_message(parsed, text, request, self._new_id)
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
            reasoning_tokens=parsed.reasoning_tokens,
            logprobs=list(zip(tokens, turn.log_probs, strict=True)) if request.logprobs else None,
        )

    async def _tokenize(self, placed: Placed) -> tuple[int, ...]:
        if placed.length <= MAX_LENGTH:
            return self.transcript.tokenize(placed)
        return await asyncio.to_thread(self.transcript.tokenize, placed)

    @contextmanager
    def _track(self) -> Iterator[None]:
        """The end of the episode cancels a request also while its body arrives."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            yield
        finally:
            self._running.discard(task)

    def cancel(self) -> None:
        """Cancel the requests in progress."""
        self.failed.cancel()
        for task in self._running:
            task.cancel()

    def _new_id(self) -> str:
        self._calls += 1
        return number_call(self._calls)


class AgentServer:
    """Serves the episodes that are open, to processes on this machine and to programs in sandboxes."""

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

    async def respond(self, call: ApiCall, *, only: AgentEpisode | None = None) -> ApiResponse:
        """Respond to a request, with the key of any open episode or of `only` one. Raises EngineError."""
        try:
            return await self._respond(call, only)
        except RequestError as error:
            build_error = build_anthropic_error if call.path.startswith(ANTHROPIC) else build_openai_error
            return build_json_response(build_error(error), error.status)

    async def _respond(self, call: ApiCall, only: AgentEpisode | None) -> ApiResponse:
        match call.method, call.path:
            case "POST", path if path in APIS:
                return await self._find_episode(call.keys, only).respond(call)
            case "POST", path if path == COUNT:
                return await self._find_episode(call.keys, only).count_tokens(call)
            case "GET", "/v1/models":
                self._find_episode(call.keys, only)
                return build_json_response(build_models())
        fix = f"Use {', '.join(APIS)}, {COUNT} or /v1/models"
        raise RequestError(f"{call.method} {call.path} does not exist. {fix}.", "unknown_url", status=404)

    def _find_episode(self, keys: Sequence[str], only: AgentEpisode | None) -> AgentEpisode:
        for key in keys:
            episode = self._episodes.get(key.removeprefix("Bearer "))
            if episode and only in (None, episode):
                return episode
        fix = "Use OPENAI_API_KEY or ANTHROPIC_API_KEY"
        message = f"The API key does not belong to an episode, or its episode has ended. {fix}."
        raise RequestError(message, "invalid_api_key", status=401)


@asynccontextmanager
async def open_agent_server() -> AsyncIterator[AgentServer]:
    """Open a server on a free port of the loopback interface, in the current event loop."""
    server = AgentServer()

    async def handle(request: web.Request) -> web.Response:
        keys = (request.headers.get("x-api-key", ""), request.headers.get("Authorization", ""))
        call = ApiCall(request.method, request.path, keys, lambda: _read_body(request))
        try:
            response = await server.respond(call)
        except EngineError as error:  # ends the run
            raise web.HTTPInternalServerError from error
        return web.Response(body=response.body, content_type=response.content_type, status=response.status)

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", handle)
    # handler_cancellation: the response to a client that has disconnected must not become a turn.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_TIMEOUT_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0, backlog=BACKLOG).start()
        server.base_url = f"http://{HOST}:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


async def _read_body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        message = f"The body has more than {MAX_BODY_BYTES} bytes. Send a shorter history."
        raise RequestError(message, "request_too_large", status=413) from None
