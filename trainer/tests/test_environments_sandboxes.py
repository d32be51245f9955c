"""The tool python in sandbox pods, whose servers are processes here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from sandbox_servers import KEY, start_server
from tool_conversations import SAMPLING, TOKENIZER, Turns, multi_turn, open_parser, write_call

from rlt_api.blocks.rollout import MultiTurn
from rlt_pod.sandbox.protocol import HOST_VARIABLE, encode
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.sandboxed_python import SandboxedPython
from rlt_trainer.environments.tool_session import ToolSession
from rlt_trainer.environments.toolbox import describe_tools
from rlt_trainer.sandboxes.claim import Claim
from rlt_trainer.sandboxes.pool import SandboxPool, Statistics, check_pool
from rlt_trainer.sandboxes.sandbox import Address, SandboxError, claim_at

GIVEN: MultiTurn = multi_turn({"name": "python"}, sandbox={})
LOSE = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
"""Ends the server, which is process 1 in a pod."""


@pytest.fixture
def servers() -> Iterator[list[Address]]:
    """Two pods."""
    with ExitStack() as stack:
        yield [("127.0.0.1", stack.enter_context(start_server())[1]) for _ in range(2)]


def build_pool(addresses: Sequence[Address], *, size: int = 2, timeout_s: float = 60.0) -> SandboxPool:
    async def find() -> Sequence[Address]:
        return addresses

    return SandboxPool(find, KEY, size=size, timeout_s=timeout_s)


async def talk(pool: SandboxPool, *programs: str) -> tuple[Episode, str]:
    """Hold a conversation with a call in each turn. Return it, and the text before its last turn."""
    sampler = Turns(*(write_call("python", code=program) for program in programs), "done")
    (prompt,) = tokenize([Example("q", "", "", "test")], TOKENIZER, tools=[{"function": {"name": "t"}}])
    limits = ConversationLimits(max_turns=4, max_response_length=4000)
    with open_parser(GIVEN) as parser:
        async with Claim(pool, 60.0) as claim:
            session = ToolSession({"python": SandboxedPython(60.0)}, GIVEN, parser, claim)
            episode = await converse(
                sampler, session, prompt, seed=1, sampling=SAMPLING, tokenizer=TOKENIZER, limits=limits
            )
    return episode, str(TOKENIZER.decode(sampler.contexts[-1]))


def test_the_programs_of_a_conversation_share_a_pod(servers: list[Address]) -> None:
    async def run() -> tuple[tuple[Episode, str], Any]:
        pool = build_pool(servers[:1])
        talked = await talk(pool, "open('kept', 'w').write('6 * 7 = 42')", "print(open('kept').read())")
        return talked, await claim_at(servers[0], KEY)

    (episode, text), again = asyncio.run(run())
    assert episode.failure is None
    assert episode.response.num_turns == 3
    assert "6 * 7 = 42\n" in text
    assert again is None, "the pod ends with its conversation"


def test_conversations_do_not_share_a_pod(servers: list[Address]) -> None:
    program = "import os, time; open(str(time.monotonic_ns()), 'w'); print('files:', len(os.listdir()))"

    async def run() -> list[tuple[Episode, str]]:
        pool = build_pool(servers)
        return list(await asyncio.gather(talk(pool, program), talk(pool, program)))

    for episode, text in asyncio.run(run()):
        assert episode.failure is None
        assert "files: 1\n" in text


def test_a_lost_pod_leaves_the_conversation_out_of_the_update(servers: list[Address]) -> None:
    episode, _ = asyncio.run(talk(build_pool(servers), LOSE))
    assert episode.failure is not None
    assert "was lost" in episode.failure
    assert episode.response.finish_reason == "abort"


def test_a_claim_without_a_free_pod_fails() -> None:
    episode, _ = asyncio.run(talk(build_pool([], timeout_s=0.5), "print(1)"))
    assert episode.failure == "no sandbox pod became free within 0.5 s"


def test_a_conversation_waits_for_the_end_of_another(servers: list[Address]) -> None:
    """The timeout of a claim begins when fewer than `size` sandboxes are claimed."""

    async def run() -> list[tuple[Episode, str]]:
        pool = build_pool(servers, size=1, timeout_s=20.0)
        return list(await asyncio.gather(talk(pool, "print(1)"), talk(pool, "print(2)")))

    assert [episode.failure for episode, _ in asyncio.run(run())] == [None, None]


def test_claims_and_failures_are_counted_once(servers: list[Address]) -> None:
    async def run() -> list[Statistics]:
        pool = build_pool(servers, size=3, timeout_s=2.0)
        await asyncio.gather(talk(pool, "print(1)"), talk(pool, LOSE))
        await talk(pool, "print(1)")  # both pods have ended with their conversations
        return [pool.take_statistics(), pool.take_statistics()]

    first, second = asyncio.run(run())
    assert len(first.claim_seconds) == 2
    assert all(0 < seconds < 2.0 for seconds in first.claim_seconds)
    assert first.failed == 2
    assert (second.claim_seconds, second.failed) == ([], 0)


@pytest.mark.parametrize("answer", [b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1{", b""])
def test_a_pod_with_an_invalid_answer_is_lost(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode({"nonce": "1"}))
        await reader.read(4096)
        writer.write(encode({"pod": "hostile"}))
        await reader.read(4096)
        writer.write(answer)
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            sandbox = await claim_at(server.sockets[0].getsockname(), KEY)
            assert sandbox
            with pytest.raises(SandboxError, match="sandbox pod hostile was lost"):
                await sandbox.run(["python3"], timeout_s=60.0)

    asyncio.run(run())


def test_a_run_without_sandbox_pods_names_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOST_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=r"rollout.multiTurn.sandbox: this run has no sandbox pods"):
        describe_tools(GIVEN)


def test_the_check_before_the_training_names_what_is_missing(servers: list[Address]) -> None:
    asyncio.run(check_pool(build_pool(servers)))
    with pytest.raises(ValueError, match=r"no sandbox pod became free .* the image must"):
        asyncio.run(check_pool(build_pool([], timeout_s=0.2)))
    with pytest.raises(ValueError, match=r"agent.command: no-such-agent is not a program of the sandbox's image"):
        asyncio.run(check_pool(build_pool(servers), "no-such-agent"))
