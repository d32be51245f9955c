"""Conversations with a real server with OpenEnv's protocol, and with servers that do not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from openenv_server import HOSTILE, start_program, start_server
from tool_conversations import EOS, SAMPLING, TOKENIZER, finish

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.driver.rollouts import find_environment_outcome
from rlt_trainer.environments import openenv
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.environments.conversations import Conversations
from rlt_trainer.environments.openenv import check_openenv
from rlt_trainer.rewards.outcome import Failure

KEY: dict[str, Any] = {"apiKey": {"name": "games", "key": "token"}}
TOKEN = "k3y-0f-the-games"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a server."""
    with start_server() as (address, _):
        yield address


@contextmanager
def start_protocol(answer: bytes) -> Iterator[str]:
    """Yield the URL of a server that sends `answer` to each connection, and nothing else."""
    program = (
        "import socket, sys\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "kept = []\n"
        "while True:\n"
        "    kept.append(server.accept()[0])\n"
        "    kept[-1].sendall(bytes.fromhex(sys.argv[1]))\n"
    )
    with start_program(sys.executable, "-c", program, answer.hex()) as (port, _):
        yield f"http://127.0.0.1:{port}"


class Scripted:
    """A sampler with fixed turns for each prompt, by the prompt's first character."""

    def __init__(self, **turns: list[str]) -> None:
        self._turns = {ord(name): iter(texts) for name, texts in turns.items()}

    async def sample(self, prompt: Any, *, seed: int, sampling: Any, max_tokens: int | None = None) -> Response:
        tokens = [*next(self._turns[prompt[0]]).encode(), EOS]
        return Response(tuple(tokens), tuple(-0.5 for _ in tokens))


def settings(url: str, *, timeout_s: float = 60, **changes: Any) -> MultiTurn:
    server = {"url": url, "actionField": "guess", "observationField": "text", **changes}
    return MultiTurn.model_validate({"openenv": server, "timeoutSeconds": timeout_s, "maxToolResponseLength": 50})


def row(name: str = "a", **extra_info: Any) -> Prompt:
    (made,) = tokenize([Example(name, "", "", "test")], TOKENIZER)
    return replace(made, index=5, extra_info=extra_info)


def converse(given: MultiTurn, sampler: Scripted, *prompts: Prompt) -> list[Episode]:
    """Run a conversation for each prompt at the same time."""

    async def run() -> list[Episode]:
        conversations = Conversations(given, Data(preset="arithmetic", max_response_length=2000), TOKENIZER)
        async with conversations.open() as start:
            tasks = (finish(start(sampler, prompt, seed=1, sampling=SAMPLING)) for prompt in prompts)
            episodes = await asyncio.gather(*tasks)
        await conversations.close()
        return list(episodes)

    return asyncio.run(run())


def text_of(episode: Episode) -> str:
    return str(TOKENIZER.decode(list(episode.response.token_ids)))


def test_a_conversation(url: str) -> None:
    (episode,) = converse(settings(url), Scripted(a=["3", "9", "5"]), row(opening="guess!"))
    assert text_of(episode) == "guess!3<|eos|>higher9<|eos|>lower5<|eos|>"
    assert (episode.reward, episode.failure, episode.response.num_turns) == (0.5, None, 3)


def test_the_row_sets_the_task(url: str) -> None:
    (episode,) = converse(settings(url), Scripted(a=["5", "7"]), row(number=7))
    assert (episode.reward, episode.failure) == (0.75, None)


def test_rejected_actions_are_observations(url: str) -> None:
    given = settings(url, actionField=None)
    turns = ["hello", '{"move": 3}', '{"guess": "x"}', '{"guess": "5"}']
    (episode,) = converse(given, Scripted(a=turns), row())
    observations = text_of(episode).split("<|eos|>")
    assert observations[1].startswith("error: the action is not JSON")
    assert observations[2].startswith("error: move: Extra inputs are not permitted")
    assert observations[3].startswith("error: guess: Input should be a number")
    assert (episode.reward, episode.failure) == (1.0, None)


def test_a_conversation_without_a_valid_action_has_the_reward_0(url: str) -> None:
    """The run does not end if the policy has not learned the form of an action yet."""
    (episode,) = converse(settings(url, actionField=None), Scripted(a=["x"] * 8), row())
    assert (episode.reward, episode.failure) == (0.0, None)


@pytest.mark.parametrize("guess", [*HOSTILE, "leave"])
def test_an_invalid_answer_ends_only_its_conversation(url: str, guess: str) -> None:
    bad, good = converse(settings(url), Scripted(a=["3", guess], b=["3", "5"]), row("a"), row("b"))
    assert bad.failure is not None
    assert bad.failure.startswith(f"OpenEnv server {url}: ")
    assert len(bad.failure) <= 500
    assert find_environment_outcome(bad) == {"environment": Failure("environment", bad.failure)}
    assert (bad.response.num_turns, bad.response.finish_reason) == (2, "abort")
    assert (good.failure, good.reward) == (None, 0.75)


def test_silence_ends_only_its_conversation(url: str) -> None:
    given = settings(url, timeout_s=3)
    bad, good = converse(given, Scripted(a=["silence"], b=["5"]), row("a"), row("b"))
    assert bad.failure == f"OpenEnv server {url}: step did not end within 3 s"
    assert (good.failure, good.reward) == (None, 1.0)


def test_observations_are_bounded_and_valid_text(url: str) -> None:
    (episode,) = converse(settings(url), Scripted(a=["long", "surrogate", "5"]), row())
    assert "9950 characters are left out" in text_of(episode)
    assert "<|eos|>?!5<|eos|>" in text_of(episode)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_conversations_share_the_sessions_of_a_server(concurrency: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server frees a session before the next conversation connects: none has to connect again."""
    monkeypatch.setattr(openenv, "CAPACITY_DELAY_S", None)  # not a valid delay
    names = "abcdefgh"
    with start_server(sessions=concurrency) as (url, _):
        given = settings(url, concurrency=concurrency)
        episodes = converse(given, Scripted(**{name: ["3", "5"] for name in names}), *map(row, names))
    assert [(each.reward, each.failure) for each in episodes] == [(0.75, None)] * len(names)


def test_a_conversation_waits_for_a_session_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openenv, "CAPACITY_DELAY_S", 0.01)
    with start_server(sessions=1) as (url, _):
        episodes = converse(settings(url, concurrency=2), Scripted(a=["3", "5"], b=["3", "5"]), row("a"), row("b"))
    assert [(each.reward, each.failure) for each in episodes] == [(0.75, None)] * 2


def test_a_server_that_ended_fails_its_conversations() -> None:
    with start_server() as (url, process):
        process.kill()
        process.wait()
        (episode,) = converse(settings(url), Scripted(a=["3"]), row())
    assert str(episode.failure).startswith(f"OpenEnv server {url}: ConnectionRefusedError")


def test_the_server_gets_the_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_server(token=TOKEN) as (url, _):
        with pytest.raises(ValueError, match="HTTP 401"):
            check_openenv(settings(url), row())
        with pytest.raises(ValueError, match=r"openenv.apiKey: the variable RLT_OPENENV_API_KEY has no value"):
            check_openenv(settings(url, **KEY), row())
        monkeypatch.setenv("RLT_OPENENV_API_KEY", "a\nb")
        with pytest.raises(ValueError, match=r"openenv.apiKey: the key contains characters not allowed"):
            check_openenv(settings(url, **KEY), row())
        monkeypatch.setenv("RLT_OPENENV_API_KEY", TOKEN)
        check_openenv(settings(url, **KEY), row())
        with pytest.raises(ValueError, match="rejected the reset") as error:
            check_openenv(settings(url, **KEY, observationField="words"), row(task="invalid"))
        assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({}, {"task": "invalid"}, "it rejected the reset: task: unknown task. Correct url, apiKey or observationField"),
        ({}, {"task": "done"}, "it ended the conversation before the first turn"),
        ({"observationField": "words"}, {}, "its observation has no field words; its fields are text. Correct "),
        ({"url": "http://127.0.0.1:1"}, {}, "OpenEnv server http://127.0.0.1:1: ConnectionRefusedError"),
        ({"url": "http://127.0.0.1:99999"}, {}, "OpenEnv server http://127.0.0.1:99999: "),
        ({"url": "http://no-such-host.invalid"}, {}, "OpenEnv server http://no-such-host.invalid: gaierror"),
    ],
)
def test_a_server_that_does_not_start_a_conversation_ends_the_run(
    url: str, changes: dict[str, Any], task: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=r"^rollout.multiTurn.openenv: ") as error:
        check_openenv(settings(**{"url": url, **changes}), row(**task))
    assert message in str(error.value)


def test_a_server_with_fewer_sessions_than_conversations_ends_the_run() -> None:
    with start_server(sessions=1) as (url, _):
        with pytest.raises(ValueError, match=r"openenv.concurrency: 64 conversations are too many: .*at capacity"):
            check_openenv(settings(url), row())
        check_openenv(settings(url, concurrency=1), row())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff" * 1000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"a: b\r\n" * 10_000,
    ],
)
def test_a_server_of_another_protocol_ends_the_run(answer: bytes) -> None:
    with start_protocol(answer) as url, pytest.raises(ValueError, match=r"^rollout.multiTurn.openenv: OpenEnv server"):
        check_openenv(settings(url, timeout_s=3), row())


def test_jobs_without_a_server_have_nothing_to_check() -> None:
    check_openenv(None, row())
    check_openenv(MultiTurn(environment="calculator"), row())
