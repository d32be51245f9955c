"""An agent that is a program in the sandbox: rollout.multiTurn.agent.command."""

from __future__ import annotations

import base64
import json

from rlt_api.blocks.rollout import Agent
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.sandboxed_agent import SandboxedAgent
from rlt_trainer.environments.session import SessionError

PROMPT_FILE = "prompt.json"
MAX_SHOWN = 200
"""Maximum number of characters of the output in an error."""


class ProgramAgent:
    """Runs the program in the sandbox of its episode. It does not get the answer: rules compare with it."""

    def __init__(self, agent: Agent, sandboxed: SandboxedAgent) -> None:
        self._agent = agent
        self._sandboxed = sandboxed

    async def start(self, key: str) -> None:
        """Open the policy's API in the sandbox. Raises SandboxError."""
        await self._sandboxed.open(key)

    async def run(self, prompt: Prompt) -> float:
        """Run the program, and return its reward. Raises SessionError, SandboxError.

        If a limit ends the program, the policy is the cause: see run_agent.
        """
        assert self._agent.command is not None
        given = {"text": prompt.text, "messages": prompt.messages, "extra_info": prompt.extra_info}
        content = base64.b64encode(json.dumps(given, default=str).encode()).decode()
        written = await self._sandboxed.answer({"put": {"path": PROMPT_FILE, "content": content}})
        if written["problem"]:
            raise SessionError(f"{PROMPT_FILE} cannot be written to the sandbox: {written['problem']}")
        ended = await self._sandboxed.run(self._agent.command, stdin=prompt.text)
        if ended.problem:
            self._sandboxed.count_limit()
            raise SessionError(f"the agent's program: {ended.problem}")
        printed = ended.output.rstrip().rpartition("\n")[2][:MAX_SHOWN]
        reward = printed if self._agent.reward_file is None else await self._read(self._agent.reward_file)
        try:
            return float(reward)
        except ValueError:
            where = self._agent.reward_file or "the last line of its output"
            raise SessionError(
                f"the agent's program ended with exit code {ended.exit_code} and without a number in {where}. "
                f"The last line is {printed!r}."
            ) from None

    async def _read(self, path: str) -> str:
        content = (await self._sandboxed.answer({"get": {"path": path}}))["content"]
        return "" if content is None else base64.b64decode(content)[:MAX_SHOWN].decode(errors="replace")

    def close(self) -> None:
        """The pod ends the program."""
