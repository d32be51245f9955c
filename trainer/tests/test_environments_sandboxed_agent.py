"""Agents in sandboxes, whose servers are processes here: their programs reach the policy of their episode alone."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from sandbox_servers import KEY, start_server
from sandboxed_agents import ASK
from tool_conversations import EOS, SAMPLING, TOKENIZER, multi_turn, open_parser

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_pod.sandbox.protocol import HEADER, HOST_VARIABLE, MAX_REQUESTS, encode, read_length
from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments import conversations, sandboxed_agent
from rlt_trainer.environments.agent_server import AgentEpisode, AgentServer, open_agent_server
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.environments.conversations import Conversations
from rlt_trainer.environments.environment import load_agent
from rlt_trainer.environments.sandboxed_agent import SandboxedAgent
from rlt_trainer.environments.toolbox import describe_tools
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rollout.engine import EngineError
from rlt_trainer.rollout.sampler import Sampler
from rlt_trainer.sandboxes.api_call import ApiCall, ApiResponse
from rlt_trainer.sandboxes.pool import SandboxPool
from rlt_trainer.sandboxes.sandbox import Sandbox, SandboxError, claim_at

LIMITS = AgentLimits(8, 500, 500)


class Answers:
    """A Sampler that answers with a fixed text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.contexts: list[str] = []

    async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
        self.contexts.append(str(TOKENIZER.decode(list(prompt))))
        tokens = (*self._text.encode(), EOS)
        return Response(tokens, tuple(-0.5 for _ in tokens), finish_reason="stop")


class Late(Answers):
    """After its answer, the clock of the event loop is 100 s further."""

    def __init__(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(text)
        self._monkeypatch = monkeypatch

    async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.call_soon(lambda: self._monkeypatch.setattr(loop, "time", lambda: now() + 100.0))
        return await super().sample(prompt, **options)


class Broken:
    """A Sampler whose engine fails."""

    async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
        raise EngineError("the engine failed")


Run = Callable[..., list[Episode]]
Records = list[Mapping[str, Any] | None]


@pytest.fixture
def records() -> Records:
    """The records of the sandboxes, in the order of their releases."""
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, records: Records) -> Iterator[Run]:
    """Runs an agent of sandboxed_agents on each prompt, each in its own sandbox."""
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(modules))
    loop = EventLoopThread("conversations")

    def run(
        agent: str,
        sampler: Sampler,
        /,
        *prompts: Prompt,
        pods: int = 1,
        server: Mapping[str, Any] = MappingProxyType({}),
        length: int = 500,
        **changes: Any,
    ) -> list[Episode]:
        with ExitStack() as stack:
            addresses = [("127.0.0.1", stack.enter_context(start_server(**server))[1]) for _ in range(pods)]

            async def find() -> Any:
                return addresses

            pool = SandboxPool(find, KEY, size=pods or 1, timeout_s=20.0 if pods else 0.5)
            monkeypatch.setattr(conversations, "open_pool", lambda given: pool)
            given: dict[str, Any] = {"agent": {"name": "sandboxed_agents:play"}, "sandbox": {}, **changes}
            data = Data(preset="digits", max_prompt_length=length, max_response_length=length)
            made = Conversations(MultiTurn.model_validate(given), data, TOKENIZER)
            named = [replace(prompt, extra_info={"agent": agent}) for prompt in prompts]
            try:
                return loop.submit(converse(made, sampler, named)).result(600)
            finally:
                loop.submit(made.close()).result(120)

    async def converse(made: Conversations, sampler: Sampler, prompts: Sequence[Prompt]) -> list[Episode]:
        async with made.open() as run_one:

            async def run(seed: int, prompt: Prompt) -> Episode:
                async with run_one(sampler, prompt, seed=seed, sampling=SAMPLING) as (episode, claim):
                    assert claim
                    await claim.release()
                    records.append(claim.record)
                    return episode

            return await asyncio.gather(*(run(seed, prompt) for seed, prompt in enumerate(prompts)))

    yield run
    loop.close()


def make_prompt(truth: str = "", text: str = "What?") -> Prompt:
    return Prompt(0, (1,), text, truth, "", "test")


def learned(episode: Episode) -> list[str]:
    """The generated text of each sequence."""
    return [
        str(TOKENIZER.decode([token for token, chosen in zip(each.token_ids, each.chosen, strict=True) if chosen]))
        for each in episode.response.sequences
    ]


def test_a_program_in_the_sandbox_reaches_the_policy_and_is_graded_there(run: Run, records: Records) -> None:
    (episode,) = run("solve", sampler := Answers("Because."), make_prompt("Because."))
    assert (episode.reward, episode.failure) == (1.0, None)
    assert learned(episode) == ["Because.<|eos|>"]
    assert sampler.contexts == ["<|bos|><|user|>What?<|eos|><|assistant|>"]
    (record,) = records
    assert record
    commands = [(each["command"], each["exit_code"]) for each in record["programs"]]
    assert commands == [("python3 agent.py", 0), ('sh -c test "$(cat answer.txt)" = "$TRUTH"', 0)]
    files = {each["path"]: each["size"] for each in record["files"]}
    assert (files["answer.txt"], files["task/question.txt"]) == (len("Because."), len("What?"))
    assert "end" not in record


def test_the_client_of_openai_works_in_the_sandbox(run: Run) -> None:
    (episode,) = run("use_openai", Answers("yes"), make_prompt("yes yes\n"))
    assert (episode.reward, episode.failure) == (1.0, None)
    assert learned(episode) == ["yes<|eos|>yes<|eos|>"]


def test_a_hanging_program_is_its_result(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the function, 60 s, does not count while a program with the limit 90 s runs."""
    (episode,) = run("hang", Late("1", monkeypatch), make_prompt(), timeoutSeconds=60)
    assert (episode.reward, episode.failure) == (-1.0, None)
    assert learned(episode) == ["1<|eos|>"]


def test_a_flood_is_bounded_and_its_own_result(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed_agent, "FLOOD_DELAY_S", 0.0)
    (episode,) = run("flood", sampler := Answers("1"), make_prompt(), maxTurns=2)
    requests = sandboxed_agent.REQUESTS_PER_TURN * 2 + sandboxed_agent.EXTRA_REQUESTS
    assert (episode.reward, episode.failure) == (requests + 1, None)
    assert (len(sampler.contexts), episode.response.finish_reason) == (2, "length")


def test_a_huge_body_does_not_reach_the_driver(run: Run) -> None:
    (episode,) = run("send_much", sampler := Answers("1"), make_prompt("413 1\n"))
    assert (episode.reward, episode.failure) == (1.0, None)
    assert len(sampler.contexts) == 1


@pytest.mark.parametrize("max_turns", [1, 8])
def test_a_lost_pod_is_left_out_of_the_update(run: Run, records: Records, max_turns: int) -> None:
    """Also if the agent exceeded a limit before, and if its function hides the error."""
    (episode,) = run("lose_pod", Answers("1"), make_prompt(), maxTurns=max_turns)
    assert (episode.reward, "was lost" in str(episode.failure)) == (None, True)
    (record,) = records
    assert record
    assert (record["end"], "files" in record) == (episode.failure, False)
    assert len(learned(episode)) == min(2, max_turns)


def test_a_claim_without_a_free_pod_is_left_out_of_the_update(run: Run) -> None:
    (episode,) = run("solve", Answers("1"), make_prompt(), pods=0)
    assert episode.failure == "no sandbox pod became free within 0.5 s"
    assert episode.response.finish_reason == "abort"


def test_an_error_of_the_engine_ends_the_run(run: Run) -> None:
    with pytest.raises(EngineError, match="the engine failed"):
        run("ask_in_vain", Broken(), make_prompt())


def test_an_episode_goes_on_beside_a_flood_and_a_lost_pod(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed_agent, "FLOOD_DELAY_S", 0.0)
    prompts = [make_prompt("1", text=agent) for agent in ("solve", "flood", "lose_pod")]
    solved, flooded, lost = run("mix", Answers("1"), *prompts, pods=3, maxTurns=1)
    assert (solved.reward, solved.failure) == (1.0, None)
    assert (flooded.reward, flooded.failure) == (sandboxed_agent.REQUESTS_PER_TURN + 65, None)
    assert (lost.reward, "was lost" in str(lost.failure)) == (None, True)


# A program instead of a function


def run_program(run: Run, program: str, **agent: Any) -> Episode:
    """Run a program as the agent, with the answers "5"."""
    command = ["python3", "-c", f"{ASK}\n{program}"]
    (episode,) = run("", Answers("5"), make_prompt(text="2+3="), agent={"command": command, **agent}, maxTurns=2)
    return episode


@pytest.mark.parametrize(
    ("end", "agent"),
    [
        ("print('log', answer, sep='\\n')", {}),
        ("print('log'); open('reward.txt', 'w').write(f'{answer}\\n')", {"rewardFile": "reward.txt"}),
        ("open('/tmp/reward.txt', 'w').write(answer)", {"rewardFile": "/tmp/reward.txt"}),
    ],
)
def test_a_program_gets_the_prompt_and_leaves_its_reward(run: Run, end: str, agent: dict[str, str]) -> None:
    program = """
given = json.load(open("prompt.json"))
assert given == {"text": "2+3=", "messages": None, "extra_info": {"agent": ""}}, given
answer = ask(sys.stdin.read())
"""
    episode = run_program(run, program + end, **agent)
    assert (episode.reward, episode.failure) == (5.0, None)
    assert learned(episode) == ["5<|eos|>"]


@pytest.mark.parametrize(
    ("program", "agent", "message"),
    [
        ("print(1)", {}, "the agent had no response to a request: set its base URL"),
        ("ask('a'); sys.exit('lost')", {}, "exit code 1 and without a number in the last line of its output. .*'lost'"),
        ("ask('a'); print('nan')", {}, "the reward nan, which is not finite"),
        ("ask('a'); print(1)", {"rewardFile": "no.txt"}, "exit code 0 and without a number in no.txt. .* '1'"),
    ],
)
def test_a_program_without_a_reward_is_left_out_of_the_update(
    run: Run, program: str, agent: dict[str, str], message: str
) -> None:
    episode = run_program(run, program, **agent)
    assert episode.reward is None
    assert re.search(message, str(episode.failure))


def test_a_program_that_floods_the_policy_is_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed_agent, "FLOOD_DELAY_S", 0.0)
    episode = run_program(run, "while ask('a')[:3] != '429': pass\nraise OSError('no more requests')")
    assert (episode.reward, episode.failure, episode.response.finish_reason) == (None, None, "length")


@pytest.mark.parametrize(
    ("end", "problem"), [("print('x' * 2**21)", "too long"), ("os.kill(os.getpid(), 9)", "ended by SIGKILL")]
)
def test_a_program_that_a_limit_ends_has_no_reward(run: Run, end: str, problem: str) -> None:
    """The policy is the cause. Without a response of the policy there is nothing to train on."""
    episode = run_program(run, f"ask('a'); {end}")
    assert (episode.reward, episode.failure, episode.response.finish_reason) == (None, None, "length")
    assert problem in str(run_program(run, end).failure)


# Two episodes at one server


@asynccontextmanager
async def open_episode(server: AgentServer, sandbox: Sandbox, text: str) -> AsyncIterator[tuple[SandboxedAgent, str]]:
    transcript = AgentTranscript(TOKENIZER, None, LIMITS)
    with open_parser(multi_turn(environment="calculator")) as parser:
        options: dict[str, Any] = {"seed": 0, "sampling": SAMPLING, "tokenizer": TOKENIZER, "parser": parser}
        episode = AgentEpisode(Answers(text), transcript, **options)
        with server.serve(episode) as key:
            agent = SandboxedAgent(sandbox, server, episode, LIMITS, 60.0)
            await agent.open(key)
            yield agent, key


async def test_the_key_of_another_episode_is_rejected() -> None:
    """A program that learned it cannot read, spend or disturb the other episode."""

    async def ask(agent: SandboxedAgent, key: str) -> str:
        program = f"{ASK}print(ask('a', {key!r}))"
        given: dict[str, Any] = {"command": ["python3", "-"], "stdin": program, "variables": {}, "timeout": None}
        return str((await agent.answer({"run": given}))["output"])

    with start_server() as (_, first), start_server() as (_, second):
        sandboxes = [await claim_at(("127.0.0.1", port), KEY) for port in (first, second)]
        one, other = (sandbox for sandbox in sandboxes if sandbox)
        async with (
            open_agent_server() as server,
            open_episode(server, one, "1") as (agent, key),
            open_episode(server, other, "2") as (other_agent, other_key),
        ):
            assert (await ask(agent, other_key)).startswith("401 ")
            assert (await ask(agent, key), await ask(other_agent, other_key)) == ("1\n", "2\n")
        assert (await ask(agent, key)).startswith("401 "), "its episode has ended"
        one.release()
        other.release()


# Many long responses


async def test_responses_that_the_pod_has_read_do_not_count() -> None:
    """It sends a request for each response, while the driver always has further responses to send."""
    total = 3 * MAX_REQUESTS
    body = b"x" * 2**21

    async def respond(call: ApiCall) -> ApiResponse:
        return ApiResponse(body)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def receive() -> bytes:
            return await reader.readexactly(read_length(await reader.readexactly(HEADER.size)))

        for message in ({"nonce": "1"}, {"pod": "full"}, {"answer": {"port": 1}}):
            writer.write(encode(message))
            await receive()
        for number in range(MAX_REQUESTS):
            writer.write(encode(build_request(number)))
        for number in range(MAX_REQUESTS, total + MAX_REQUESTS):
            assert len(await receive()) > len(body)
            if number < total:
                writer.write(encode(build_request(number)))
        writer.write(encode({"answer": {"output": "all"}}))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        sandbox = await claim_at(server.sockets[0].getsockname(), KEY)
        assert sandbox
        assert await sandbox.open_api(respond, max_body=3) == 1
        assert (await sandbox.run(["python3"], timeout_s=60.0)).output == "all"
        sandbox.release()


# A pod whose server itself is hostile


def build_request(number: Any, **changes: Any) -> dict[str, Any]:
    return {"request": number, "method": "POST", "path": "/", "keys": [], "body": "", **changes}


@pytest.mark.parametrize(
    "frames",
    [
        [{"answer": {}}, {"answer": {}}],
        [build_request(number) for number in range(2 * MAX_REQUESTS + 1)],
        [build_request(1), build_request(1)],
        [build_request(1, body="eHh4eA==")],
        [build_request(1, body="?")],
        [build_request(1, keys="k")],
        [build_request("1")],
        [build_request(1), {"cancel": 1}, {"cancel": 1}],
        [{"cancel": 1}],
        [{"unknown": 1}],
    ],
)
async def test_a_pod_that_breaks_the_protocol_is_lost(frames: list[dict[str, Any]]) -> None:
    async with claim_hostile([{"answer": {"port": 1}}], frames) as sandbox:
        assert await sandbox.open_api(wait, max_body=3) == 1
        with pytest.raises(SandboxError, match="sandbox pod hostile was lost: ProtocolError"):
            await run_twice(sandbox)


async def test_a_request_from_the_sandbox_of_a_tool_is_a_lost_pod() -> None:
    async with claim_hostile([build_request(1)]) as sandbox:
        with pytest.raises(SandboxError, match="sandbox pod hostile was lost: ProtocolError"):
            await sandbox.run(["python3"], timeout_s=60.0)


async def run_twice(sandbox: Sandbox) -> None:
    for _ in range(2):
        await sandbox.run(["python3"], timeout_s=60.0)


async def wait(call: ApiCall) -> ApiResponse:
    response: ApiResponse = await asyncio.get_running_loop().create_future()
    return response


@asynccontextmanager
async def claim_hostile(*batches: list[dict[str, Any]]) -> AsyncIterator[Sandbox]:
    """Claim a pod whose server sends the next frames of a list after each request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for batch in ([{"nonce": "1"}], [{"pod": "hostile"}], *batches):
            writer.write(b"".join(map(encode, batch)))
            if not await reader.read(4096):
                break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        sandbox = await claim_at(server.sockets[0].getsockname(), KEY)
        assert sandbox
        yield sandbox
        sandbox.release()


# Before the training


@pytest.mark.parametrize(
    ("agent", "changes", "message"),
    [
        ("scripted_agents:play", {"sandbox": {}}, "too many positional arguments. With rollout.multiTurn.sandbox, its"),
        ("sandboxed_agents:play", {}, "missing a required argument: 'sandbox'. Without rollout.multiTurn.sandbox, its"),
    ],
)
def test_a_function_with_other_parameters_is_rejected(agent: str, changes: dict[str, Any], message: str) -> None:
    multi_turn = MultiTurn.model_validate({"agent": {"name": agent}, **changes})
    with pytest.raises(ValueError, match=f"rollout.multiTurn.agent {agent}: {message} parameters are .prompt"):
        load_agent(multi_turn)


def test_a_run_without_sandbox_pods_names_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOST_VARIABLE, raising=False)
    multi_turn = MultiTurn.model_validate({"agent": {"name": "sandboxed_agents:play"}, "sandbox": {}})
    with pytest.raises(ValueError, match=r"rollout.multiTurn.sandbox: this run has no sandbox pods"):
        describe_tools(multi_turn)
