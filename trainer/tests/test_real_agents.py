"""Agents of others, unmodified, as programs in a sandbox: they write a file, and their sequences are token-exact.

The commands are in docs/conversations.md. No program reaches another network than the loopback interface.
"""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import test_environments_sandboxed_agent
from test_environments_agent_apis import Turns
from test_environments_sandboxed_agent import Run, make_prompt
from tool_conversations import TOKENIZER, write_call

from rlt_e2e.ports import free_port
from rlt_trainer.batches.response import Response
from rlt_trainer.environments.conversation import Episode
from separate_environment import install, install_npm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="requirements/npm-agents has programs for x86_64"),
]
records = test_environments_sandboxed_agent.records
run = test_environments_sandboxed_agent.run

PAGE = (Path(__file__).parents[2] / "docs/conversations.md").read_text()
TASK = "Write hi to out.txt."
WRITE = "echo hi > out.txt"
DONE = "All done."
GRADE = 'test "$(cat out.txt)" = hi && echo 1 || echo 0'
CODE = 'from pathlib import Path\nPath("out.txt").write_text("hi")'


class Script(Turns):
    """A Sampler with fixed turns for the requests with a text, such as a tool, and a title for the others."""

    def __init__(self, mark: str, *turns: str) -> None:
        super().__init__()
        self._mark = mark
        self._left = list(turns)
        self.sampled: list[tuple[Sequence[int], Response]] = []

    async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
        is_work = self._mark in str(TOKENIZER.decode(list(prompt)))
        self._turns = iter([self._left.pop(0) if is_work else "A title"])
        response = await super().sample(prompt, **options)
        log_probs = [-1.0 - len(self.sampled) - index / 1000 for index in range(len(response.token_ids))]
        response = replace(response, log_probs=log_probs)
        self.sampled.append((prompt, response))
        return response


def read_sampled(sequence: Response) -> list[tuple[int, float]]:
    """Return the tokens that are trained on, and their log-probabilities."""
    found = zip(sequence.token_ids, sequence.log_probs, sequence.chosen, strict=True)
    return [(token, log_prob) for token, log_prob, chosen in found if chosen]


def check_tokens(script: Script, sequences: Sequence[Response]) -> None:
    """All tokens of the engine are in the sequences, each after the tokens from which the engine sampled it."""
    for prompt, turn in script.sampled:
        (sequence,) = (each for each in sequences if set(read_sampled(turn)) <= set(read_sampled(each)))
        assert sequence.prompt is not None
        before = len(prompt) - len(sequence.prompt)
        assert [*sequence.prompt, *sequence.token_ids[:before]] == list(prompt)
        end = before + len(turn.token_ids)
        assert tuple(sequence.token_ids[before:end]) == tuple(turn.token_ids)
        assert all(sequence.chosen[before:end])
    sampled = sum(len(turn.token_ids) for _, turn in script.sampled)
    assert sum(sum(sequence.chosen) for sequence in sequences) == sampled


@cache
def find_programs() -> str:
    """Return the search path of all agents."""
    folder = install("coding-agents").parent
    modules = install_npm("npm-agents", folder)
    codex = modules / "@openai/codex/vendor/x86_64-unknown-linux-musl/bin"
    return ":".join(
        map(str, (folder, modules / "@anthropic-ai/claude-code-linux-x64", codex, modules / "opencode-linux-x64/bin"))
    )


def run_command(run: Run, script: Script, command: str) -> Episode:
    """Run a command as the agent of one episode, and check its reward and its tokens."""
    proxy = f"http://127.0.0.1:{free_port()}"  # no process listens on it
    setting = f"export PATH={shlex.quote(find_programs())}:$PATH HTTP_PROXY={proxy} HTTPS_PROXY={proxy}"
    agent = {"command": ["sh", "-c", f"{setting}\n{command}\n{GRADE}"]}
    server = {"is_owner": True, "memory": 3 * 2**29}  # of a sandbox with 2Gi
    (episode,) = run("", script, make_prompt(text=TASK), agent=agent, server=server, length=200_000, timeoutSeconds=600)
    assert (episode.reward, episode.failure) == (1.0, None)
    check_tokens(script, [*episode.response.sequences, *episode.response.side])
    return episode


def read_commands() -> dict[str, str]:
    """Return the commands of the page."""
    (block,) = (each for each in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if each.startswith("# Claude Code"))
    return dict(re.findall(r"^# (.+)\n((?:.+\n)+)", block, re.MULTILINE))


def write_code(code: str) -> str:
    return f"I run code.\n<code>\n{code}\n</code>"


SUBMIT = write_call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


@pytest.mark.parametrize(
    ("agent", "mark", "turns", "sequences", "sides"),
    [
        ("Claude Code", '"name": "Bash"', [write_call("Bash", command=WRITE), DONE], [2], 0),
        ("Codex", '"name": "exec_command"', [write_call("exec_command", cmd=WRITE), DONE], [2], 0),
        ("OpenCode", '"name": "bash"', [write_call("bash", command=WRITE, description="Write"), DONE], [2], 1),
        ("mini-swe-agent", '"name": "bash"', [write_call("bash", command=WRITE), SUBMIT], [2], 0),
        ("smolagents", "", [write_code(CODE), write_code('final_answer("Done")')], [1, 1], 0),
    ],
)
def test_a_program_is_recorded_unmodified(
    run: Run, agent: str, mark: str, turns: list[str], sequences: list[int], sides: int
) -> None:
    response = run_command(run, Script(mark, *turns), read_commands()[agent]).response
    assert [each.num_turns for each in response.sequences] == sequences
    assert len(response.side) == sides


@pytest.mark.parametrize(
    ("environment", "program", "end", "sequences"),
    [
        ("agents", "write_with_openai_agents.py", DONE, [2]),
        ("coding-agents", "write_with_smolagents.py", write_call("final_answer", answer=DONE), [1, 1]),
    ],
)
def test_a_library_is_recorded_unmodified(
    run: Run, environment: str, program: str, end: str, sequences: list[int]
) -> None:
    script = Script('"name": "write"', write_call("write", path="out.txt", text="hi"), end)
    response = run_command(run, script, f"{install(environment)} {Path(__file__).with_name(program)}").response
    assert [each.num_turns for each in response.sequences] == sequences
