"""Conversations with an environment on a server of OpenEnv. Each has a WebSocket connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rlt_api.blocks.rollout import MultiTurn
from rlt_api.findings.masking import mask_text
from rlt_api.spec.pod_variables import API_KEY, OPENENV_PREFIX
from rlt_trainer.data.prompt import Messages, Prompt
from rlt_trainer.environments.openenv_messages import (
    CLOSE,
    ActionError,
    Answer,
    CapacityError,
    build_reset,
    build_step,
    parse_answer,
)
from rlt_trainer.environments.session import Reply, SampledTurn, SessionError
from rlt_trainer.environments.tool_session import shorten
from rlt_trainer.pod_variables import read_variable

FIELD = "rollout.multiTurn.openenv"
MAX_MESSAGE_BYTES = 4 * 2**20
"""Maximum size of one answer."""
CAPACITY_DELAY_S = 1.0
"""Delay before another connection if all sessions of the server are in use."""
MESSAGE_CHARACTERS = 500
"""Maximum number of characters in the message of a failure."""
CLOSE_TIMEOUT_S = 5.0
"""Time that the server has to end its session, so that the next conversation can have it."""


class OpenEnvServer:
    """A server, for all conversations of a run."""

    def __init__(self, multi_turn: MultiTurn) -> None:
        """Raises ValueError for an API key that is missing or invalid."""
        assert multi_turn.openenv is not None
        self._multi_turn = multi_turn
        self._openenv = multi_turn.openenv
        self._key = read_variable(OPENENV_PREFIX + API_KEY, f"{FIELD}.apiKey") if self._openenv.api_key else ""
        if not (self._key.isascii() and self._key.isprintable()):
            raise ValueError(
                f"{FIELD}.apiKey: the key contains characters not allowed in an HTTP header. Correct the Secret."
            )
        self.slots = asyncio.Semaphore(self._openenv.concurrency)
        """Limits the conversations of all batches."""

    def open_session(self, prompt: Prompt) -> OpenEnvSession:
        """Return the session of a conversation on `prompt`. It connects with its reset."""
        return OpenEnvSession(self, prompt, self._multi_turn)

    async def connect(self) -> ClientConnection:
        """Connect to the server. Raises OSError, WebSocketException, and ValueError for an invalid URL."""
        return await connect(
            build_websocket_url(self._openenv.url),
            additional_headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            compression=None,  # a small message cannot become a large one
            max_size=MAX_MESSAGE_BYTES,
            max_queue=1,
            open_timeout=None,  # the session has a timeout
            ping_timeout=None,  # an environment may block its server for as long as an answer may take
        )

    def describe(self, problem: str | Exception) -> str:
        """Return the message of a failure, without the key."""
        is_other = isinstance(problem, Exception) and not isinstance(problem, SessionError)
        text = f"{type(problem).__name__}: {problem}" if is_other else str(problem)
        masked = mask_text(f"OpenEnv server {self._openenv.url}: {text}", [self._key] if self._key else [])
        return masked[:MESSAGE_CHARACTERS]

    async def check(self, prompt: Prompt) -> None:
        """Start two conversations at the same time, or one if concurrency is 1. Raises ValueError with the fix if the
        server does not answer."""
        concurrency = self._openenv.concurrency
        sessions = [self.open_session(prompt) for _ in range(min(2, concurrency))]
        try:
            for session in sessions:
                await session.start()
        except CapacityError as error:
            problem = str(error).rstrip(".")
            raise ValueError(
                f"{FIELD}.concurrency: {concurrency} conversations are too many: {problem}. Raise max_concurrent_envs "
                "of the server, or reduce concurrency."
            ) from error
        except SessionError as error:
            raise ValueError(
                f"{FIELD}: {error}. Correct url, apiKey or observationField, or check that the server runs and the "
                "pods can connect to it."
            ) from error
        finally:
            for session in sessions:
                await session.close()


class OpenEnvSession:
    """One conversation."""

    def __init__(self, server: OpenEnvServer, prompt: Prompt, multi_turn: MultiTurn) -> None:
        assert multi_turn.openenv is not None
        self._server = server
        self._prompt = prompt
        self._openenv = multi_turn.openenv
        self._timeout_s = multi_turn.timeout_seconds
        self._max_length = multi_turn.max_tool_response_length
        self._connection: ClientConnection | None = None

    async def reset(self) -> Messages:
        """See Session. Connect again while all sessions of the server are in use. The first observation may be
        empty."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        while True:
            try:
                return await self.start()
            except CapacityError:
                if loop.time() >= end:
                    raise
            await asyncio.sleep(CAPACITY_DELAY_S)

    async def start(self) -> Messages:
        """Connect, and start the conversation. Raises SessionError, and CapacityError if all sessions are in use."""
        async with self._limit("reset"):
            self._connection = await self._server.connect()
            answer = await self._exchange(self._connection, build_reset(self._prompt))
            if answer.is_rejection:
                raise SessionError(f"it rejected the reset: {answer.text}")
            if answer.is_done:
                raise SessionError("it ended the conversation before the first turn")
        return self._to_messages(answer.text) if answer.text else []

    async def step(self, turn: SampledTurn) -> Reply:
        """See Session. An action that the environment rejects is an observation: "error: ..."."""
        assert self._connection is not None
        try:
            message = build_step(turn.text, self._openenv)
        except ActionError as error:
            return Reply(self._to_messages(f"error: {error}"))
        async with self._limit("step"):
            answer = await self._exchange(self._connection, message)
        text = f"error: {answer.text}" if answer.is_rejection else answer.text
        return Reply(self._to_messages(text), answer.reward, answer.is_done)

    async def close(self) -> None:
        """See Session. Wait until the server has ended its session."""
        if self._connection is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._connection.send(CLOSE)
                await self._connection.recv()  # raises ConnectionClosed
                await self._connection.close()
        except (OSError, WebSocketException):
            pass
        finally:
            self._drop()

    @asynccontextmanager
    async def _limit(self, call: str) -> AsyncIterator[None]:
        """Limit the time of a call, and describe its failure. Its connection is then dropped: a late answer is not the
        next one's."""
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                yield
        except (SessionError, OSError, WebSocketException, ValueError, ImportError) as error:  # ImportError: SOCKS
            self._drop()
            problem = f"{call} did not end within {self._timeout_s:g} s" if limit.expired() else error
            kind = CapacityError if isinstance(error, CapacityError) else SessionError
            raise kind(self._server.describe(problem)) from error

    async def _exchange(self, connection: ClientConnection, message: str) -> Answer:
        with suppress(ConnectionClosed):  # the answer may precede the end
            await connection.send(message)
        return parse_answer(await connection.recv(), self._openenv.observation_field)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()
            self._connection = None

    def _to_messages(self, text: str) -> Messages:
        return [{"role": "user", "content": shorten(text, self._max_length)}]


def build_websocket_url(url: str) -> str:
    """Return the address of the connections to a server with the base URL `url`.

    >>> build_websocket_url("https://echo.games/v1/")
    'wss://echo.games/v1/ws'
    """
    base = url.rstrip("/")
    return f"{base.replace('http', 'ws', 1) if base.startswith('http') else base}/ws"


def check_openenv(multi_turn: MultiTurn | None, prompt: Prompt) -> None:
    """Raise ValueError if the job has a server of OpenEnv that does not start a conversation on `prompt`."""
    if multi_turn is not None and multi_turn.openenv is not None:
        asyncio.run(OpenEnvServer(multi_turn).check(prompt))
