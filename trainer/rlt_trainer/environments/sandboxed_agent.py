"""The sandbox of an agent's episode: its programs, and their requests for the policy's API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rlt_trainer.environments.agent_server import AgentEpisode, AgentServer
from rlt_trainer.environments.agent_transcript import AgentLimits
from rlt_trainer.environments.agent_variables import build_variables
from rlt_trainer.rollout.engine import EngineError
from rlt_trainer.sandboxes.api_call import ApiCall, ApiResponse, build_json_response
from rlt_trainer.sandboxes.record import Result
from rlt_trainer.sandboxes.sandbox import Sandbox
from rlt_trainer.sandboxes.user_sandbox import answer

LOOPBACK = "127.0.0.1"
REQUESTS_PER_TURN = 8
EXTRA_REQUESTS = 64
"""Number of requests from a sandbox: REQUESTS_PER_TURN * maxTurns + EXTRA_REQUESTS, with those that sample nothing."""
FLOOD_DELAY_S = 5.0
"""Delay of the error that each further request gets."""
MAX_BODY_BYTES = 2**20
BYTES_PER_TOKEN = 64
"""A request from a sandbox has at most MAX_BODY_BYTES, and BYTES_PER_TOKEN for each token of the limits."""


class SandboxedAgent:
    """Gives an agent its sandbox, and the programs there the policy's API of this episode alone."""

    def __init__(
        self, sandbox: Sandbox, server: AgentServer, episode: AgentEpisode, limits: AgentLimits, timeout_s: float
    ) -> None:
        """`timeout_s` limits a program's time without a request."""
        self._sandbox = sandbox
        self._server = server
        self._episode = episode
        self._limits = limits
        self._timeout_s = timeout_s
        self._requests_left = REQUESTS_PER_TURN * limits.max_requests + EXTRA_REQUESTS
        self._variables: dict[str, str] = {}

    async def open(self, key: str) -> None:
        """Open the policy's API in the sandbox, for programs with the key of the episode. Raises SandboxError."""
        tokens = self._limits.max_prompt_length + self._limits.max_response_length
        port = await self._sandbox.open_api(self._respond, MAX_BODY_BYTES + BYTES_PER_TOKEN * tokens)
        self._variables = build_variables(f"http://{LOOPBACK}:{port}", key, no_proxy=LOOPBACK)

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request of UserSandbox. Raises SandboxError."""
        return await answer(self._sandbox, request, self.run)

    async def run(
        self,
        command: Sequence[str],
        *,
        stdin: str,
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a program with the policy's API: see UserSandbox. Raises SandboxError."""
        return await self._sandbox.run(
            command,
            stdin=stdin,
            variables={**self._variables, **(variables or {})},
            timeout_s=self._timeout_s if timeout is None else timeout,
            limit=self._episode.activity.limit,
        )

    def count_limit(self) -> None:
        """Count a limit that the policy has reached: the episode ends as with too many requests."""
        self._episode.transcript.has_reached_limit = True

    async def _respond(self, call: ApiCall) -> ApiResponse:
        self._requests_left -= 1
        if self._requests_left < 0:
            self.count_limit()
            await asyncio.sleep(FLOOD_DELAY_S)
            error = {"type": "rate_limit_error", "message": "The episode has had all its requests. Send fewer ones."}
            return build_json_response({"type": "error", "error": error}, 429)
        try:
            return await self._server.respond(call, only=self._episode)
        except EngineError:  # ends the run
            return ApiResponse(b"", status=500)
