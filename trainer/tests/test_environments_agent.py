"""Agents with OpenAI's client, unmodified: their requests are recorded token by token."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import torch
from engine_calls import EngineCalls
from openai import AsyncOpenAI, AuthenticationError
from tool_conversations import finish, multi_turn, open_parser

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import chat_text
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.agent import FIX_BASE_URL
from rlt_trainer.environments.agent_server import MAX_LENGTH, AgentEpisode, open_agent_server
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.environments.conversations import Conversations
from rlt_trainer.environments.environment import load_agent
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rollout.engine import EngineError, Sampling
from rlt_trainer.rollout.sampler import Sampler
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.sandboxes.api_call import ApiCall, ApiResponse
from separate_environment import install

TOKENIZER = build_byte_tokenizer()
EOS = 257
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=100, stop_token_ids=(EOS,))
SMALL: dict[str, Any] = {"max_prompt_length": 99, "max_response_length": 60, "maxTurns": 3}
"""Limits that agents exceed."""
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression":   "2+3"}}\n</tool_call>'


class Turns:
    """A Sampler with fixed turns."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)
        self.contexts: list[list[int]] = []
        self.seeds: list[int] = []

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        self.contexts.append(list(prompt))
        self.seeds.append(seed)
        tokens = [*next(self._turns).encode(), EOS][:max_tokens]
        reason: Any = "stop" if tokens[-1] == EOS else "length"
        return Response(tuple(tokens), tuple(-0.5 for _ in tokens), finish_reason=reason)


@pytest.fixture(scope="module", autouse=True)
def _module() -> Iterator[None]:
    """Processes of agents can import scripted_agents."""
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(modules))
        yield


def make_prompt(text: str = "a", truth: str = "", **extra_info: str) -> Prompt:
    return Prompt(0, (1,), text, truth, "", "test", extra_info=extra_info)


Run = Callable[..., list[Episode]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs an agent of scripted_agents on each prompt. Their processes are forked from one that has imported it."""
    made: dict[str, Conversations] = {}

    def run(
        agent: str,
        sampler: Sampler,
        *prompts: Prompt,
        sampling: Sampling = SAMPLING,
        max_prompt_length: int = 500,
        max_response_length: int = 500,
        **changes: Any,
    ) -> list[Episode]:
        multi_turn = MultiTurn.model_validate({"agent": {"name": "scripted_agents:play"}, **changes})
        data = Data(preset="digits", max_prompt_length=max_prompt_length, max_response_length=max_response_length)
        key = f"{multi_turn!r} {data!r}"
        made[key] = made.get(key) or Conversations(multi_turn, data, TOKENIZER)
        named = [replace(prompt, extra_info={"agent": agent, **prompt.extra_info}) for prompt in prompts]
        return loop.submit(converse(made[key], sampler, named, sampling)).result(120)

    async def converse(
        conversations: Conversations, sampler: Sampler, prompts: Sequence[Prompt], sampling: Sampling
    ) -> list[Episode]:
        async with conversations.open() as run_one:
            return await asyncio.gather(
                *(
                    finish(run_one(sampler, prompt, seed=seed, sampling=sampling))
                    for seed, prompt in enumerate(prompts, 7)
                )
            )

    loop = EventLoopThread("conversations")
    yield run
    for conversations in made.values():
        loop.submit(conversations.close()).result(120)
    loop.close()


def decode(tokens: Sequence[int]) -> str:
    return str(TOKENIZER.decode(list(tokens)))


def learned(response: Response) -> str:
    return decode([token for token, chosen in zip(response.token_ids, response.chosen, strict=True) if chosen])


def test_a_tool_loop_is_one_sequence_of_the_generated_tokens(run: Run) -> None:
    (episode,) = run("use_tools", sampler := Turns(f"I add.{CALL}", "5"), make_prompt("2+3?", "5"))
    assert (episode.reward, episode.failure) == (1.0, None)
    response = episode.response
    assert response.earlier == ()
    assert (response.num_turns, response.finish_reason) == (2, "stop")
    assert learned(response) == f"I add.{CALL}<|eos|>5<|eos|>"  # with the spaces that JSON does not keep
    assert decode(response.token_ids) == (
        f"I add.{CALL}<|eos|><|user|><tool_response>5</tool_response><|eos|><|assistant|>5<|eos|>"
    )
    assert set(response.log_probs[: len(f"I add.{CALL}") + 1]) == {-0.5}
    assert response.prompt is not None
    assert decode(response.prompt).endswith("<|system|>Calculate.<|eos|><|user|>2+3?<|eos|><|assistant|>")
    assert '"name": "calculator"' in decode(response.prompt)
    assert sampler.contexts[1] == [*response.prompt, *response.token_ids[:-2]]
    assert len(set(sampler.seeds)) == 2


def test_a_malformed_call_is_text(run: Run) -> None:
    turn = "<tool_call>{2+3}</tool_call>"
    (episode,) = run("use_tools", Turns(turn), make_prompt("2+3?", turn))
    assert episode.reward == 1.0


def test_a_stream_has_the_same_sequence(run: Run) -> None:
    (episode,) = run("chat", Turns("x", "\ufffd", "z"), make_prompt())
    assert (episode.reward, episode.failure) == (None, None)
    messages = [("user", "a"), ("assistant", "x"), ("user", "o")]
    whole = [{"role": role, "content": content} for role, content in messages]
    assert episode.response.prompt is not None
    begin = decode([*episode.response.prompt, *episode.response.token_ids])
    assert begin.startswith(chat_text(whole, TOKENIZER))
    assert learned(episode.response) == "x<|eos|>\ufffd<|eos|>z<|eos|>"


def test_a_changed_history_begins_a_sequence_of_the_same_episode(run: Run) -> None:
    (episode,) = run("summarize", Turns("1", "2", "3", "4"), make_prompt())
    sequences = episode.response.sequences
    assert [learned(each) for each in sequences] == ["1<|eos|>2<|eos|>", "3<|eos|>", "4<|eos|>"]
    assert [decode(each.prompt or ()) for each in sequences[1:]] == [
        "<|bos|><|user|>summary<|eos|><|assistant|>",
        "<|bos|><|system|>sub<|eos|><|user|>x<|eos|><|assistant|>",
    ]
    assert episode.reward == 0.5


def test_a_turn_that_is_continued_twice_is_trained_on_once(run: Run) -> None:
    (episode,) = run("retry", Turns("1", "2", "3"), make_prompt())
    first, second = episode.response.sequences
    assert learned(first) == "1<|eos|>2<|eos|>"
    assert learned(second) == "3<|eos|>"
    assert first.prompt is not None
    assert second.prompt is not None
    assert second.prompt[: len(first.prompt) + 2] == (*first.prompt, *first.token_ids[:2])


def test_episodes_run_at_the_same_time_and_get_their_own_responses(run: Run) -> None:
    class Answers(Turns):
        """Answers with the question."""

        async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
            self._turns = iter([decode(prompt)[-len("b<|eos|><|assistant|>")]])
            return await super().sample(prompt, **options)

    letters = "bcdefgh"
    episodes = run("use_tools", Answers(), *(make_prompt(letter, letter) for letter in letters))
    assert [learned(episode.response)[0] for episode in episodes] == list(letters)
    assert {episode.reward for episode in episodes} == {1.0}


def test_log_probabilities_come_from_the_engine(run: Run) -> None:
    (episode,) = run("read_log_probs", Turns("hello"), make_prompt())
    assert episode.reward == sum(episode.response.log_probs) == -3.0


# Limits and invalid input


def test_an_agent_that_never_ends_has_the_reward_0_at_the_maximum_of_requests(run: Run) -> None:
    """The policy is the cause, so that its response has the reward 0."""
    (episode,) = run("never_end", Turns("1", "2", "3", "4"), make_prompt(), **SMALL)
    assert (episode.reward, episode.failure) == (None, None)
    assert (episode.response.num_turns, episode.response.finish_reason) == (3, "length")


def test_a_conversation_that_fills_the_context_ends_with_its_tokens(run: Run) -> None:
    (episode,) = run("never_end", Turns("1" * 24, "2" * 24, "3"), make_prompt(), **SMALL)
    assert (episode.response.num_turns, episode.response.finish_reason) == (2, "length")
    assert len(episode.response.token_ids) <= 60
    assert episode.response.chosen[-1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "400 None messages: .*List should have at least 1 item"),
        ({"messages": [{"role": "robot"}]}, "400 None messages.0.role: .*'robot' is not a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text is supported"),
        ({"messages": [{"role": "user", "content": "b"}], "n": 2}, "400 unsupported_parameter n: .*Remove it"),
        (
            {"messages": [{"role": "user", "content": "b"}], "stop": ["x", ""]},
            "400 None stop.1: .*at least 1 character",
        ),
        (
            {"messages": [{"role": "user", "content": "b"}], "tool_choice": "required"},
            "a call cannot be guaranteed.*Use auto",
        ),
        ({"messages": [{"role": "user", "content": "b"}], "max_tokens": 0}, "400 None max_tokens: "),
    ],
)
def test_an_invalid_request_is_an_error_in_the_schema_of_openai(run: Run, body: dict[str, Any], message: str) -> None:
    (episode,) = run("send", Turns("1", "2"), make_prompt(json.dumps(body)))
    assert episode.failure is not None
    assert re.search(message, episode.failure), episode.failure


def test_a_prompt_longer_than_the_context_is_an_error(run: Run) -> None:
    (episode,) = run("never_end", Turns("1"), make_prompt("x" * 100), **SMALL)
    assert "The messages have 104 tokens: data.maxPromptLength is 99" in str(episode.failure)
    assert not episode.response.token_ids
    body = {"messages": [{"role": "user", "content": "x" * 100}]}
    (episode,) = run("expect_context_length_exceeded", Turns("1"), make_prompt(json.dumps(body)), **SMALL)
    assert episode.reward == 1.0


def test_an_unknown_model_key_or_path_is_an_error(run: Run) -> None:
    (episode,) = run("misuse", Turns("1"), make_prompt())
    assert episode.failure == "ValueError: policy 404 model_not_found 401 invalid_api_key 404 unknown_url"


def test_an_agent_that_hangs_ends_alone(run: Run) -> None:
    prompts = make_prompt(agent="hang"), make_prompt(agent="send_nothing")
    hung, other = run("hang", Turns("1"), *prompts, timeoutSeconds=3)
    assert hung.failure == "TimeoutError: the agent made no request for 3 s, and did not end"
    assert str(other.failure).startswith("the agent had no response")


class FirstNeverEnds(Turns):
    """The first request gets no response."""

    is_cancelled = False

    def __init__(self, *turns: str) -> None:
        super().__init__(*turns)
        self.started = asyncio.Event()

    async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
        response = await super().sample(prompt, **options)
        if len(self.contexts) > 1:
            return response
        self.started.set()
        never: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        try:
            return await never
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


def test_a_request_whose_client_disconnects_is_cancelled_and_sent_again(run: Run) -> None:
    (episode,) = run("give_up", sampler := FirstNeverEnds("lost", *"22222"), make_prompt())
    assert sampler.is_cancelled
    assert sampler.contexts[0] == sampler.contexts[1]
    assert [learned(each) for each in episode.response.sequences] == ["2<|eos|>"]
    assert episode.reward == 1.0


def test_requests_after_the_end_of_an_episode_are_rejected() -> None:
    sampler = FirstNeverEnds("lost", "2")

    async def leave_request() -> None:
        limits = AgentLimits(8, 500, 500)
        async with open_agent_server() as server, AsyncExitStack() as stack:
            parser = stack.enter_context(open_parser(multi_turn(environment="calculator")))
            options: dict[str, Any] = {"seed": 0, "sampling": SAMPLING, "tokenizer": TOKENIZER, "parser": parser}
            episode = AgentEpisode(sampler, AgentTranscript(TOKENIZER, None, limits), **options)
            with server.serve(episode) as key:
                client = AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key=key)
                request = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "a"}])
                late = asyncio.create_task(request)
                await sampler.started.wait()
            with pytest.raises(AuthenticationError, match="its episode has ended"):
                await late  # the client sends it again

    asyncio.run(leave_request())
    assert sampler.is_cancelled


class Waiting:
    """The tokenizer, whose long texts wait until they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, text: str, **options: Any) -> Any:
        assert len(text) < MAX_LENGTH or self.released.wait(10), "the event loop waits for a long text"
        return TOKENIZER(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(TOKENIZER, name)


async def test_a_long_prompt_does_not_hold_the_event_loop() -> None:
    def ask(episode: AgentEpisode, length: int) -> Coroutine[Any, Any, ApiResponse]:
        messages = [{"role": "user", "content": "x" * length}]
        body = json.dumps({"model": "policy", "messages": messages}).encode()
        return episode.respond(ApiCall("POST", "/v1/chat/completions", (), AsyncMock(return_value=body)))

    tokenizer: Any = Waiting()
    with open_parser(multi_turn(environment="calculator")) as parser:
        options: dict[str, Any] = {"seed": 0, "sampling": SAMPLING, "tokenizer": TOKENIZER, "parser": parser}
        transcript = AgentTranscript(tokenizer, None, AgentLimits(2, 2 * MAX_LENGTH, 60))
        episode = AgentEpisode(sampler := Turns("1", "2"), transcript, **options)
        long = asyncio.create_task(ask(episode, MAX_LENGTH + 1))
        await asyncio.sleep(0)  # it waits for its tokens
        assert b'"content": "1"' in (await ask(episode, 1)).body
        tokenizer.released.set()
        assert b'"content": "2"' in (await long).body
    assert [len(context) > MAX_LENGTH for context in sampler.contexts] == [False, True]


def test_an_error_of_the_engine_ends_the_run(run: Run) -> None:
    class Broken:
        async def sample(self, prompt: Sequence[int], **options: Any) -> Response:
            raise EngineError("the engine failed")

    with pytest.raises(EngineError, match="the engine failed"):
        run("use_tools", Broken(), make_prompt())


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("send_nothing", f"the agent had no response to a request: {FIX_BASE_URL}"),
        ("return_text", "the agent returned good instead of a reward or None"),
    ],
)
def test_an_agent_without_a_result_is_a_failure(run: Run, agent: str, message: str) -> None:
    (episode,) = run(agent, Turns("1"), make_prompt())
    assert episode.failure == message


def test_an_unknown_agent_is_rejected_before_the_training() -> None:
    multi_turn = MultiTurn.model_validate({"agent": {"name": "no_such_module:solve"}})
    with pytest.raises(ValueError, match=r"rollout.multiTurn.agent: .* cannot be imported"):
        load_agent(multi_turn)


def test_a_real_engine_generates_each_turn_from_all_earlier_tokens(run: Run, tiny_model: str) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=60, stop_token_ids=tuple(range(200)))
    engine = EngineCalls(TransformersEngine(tiny_model, dtype=torch.float32, device=torch.device("cpu")), sampling)
    episodes = run("chat", engine, make_prompt("a"), make_prompt("bc"), sampling=sampling)
    for response in (episode.response for episode in episodes):
        assert response.num_turns == 3
        assert response.earlier == ()
        assert response.prompt is not None
        recomputed = engine.log_probs([[*response.prompt, *response.token_ids]])[0][len(response.prompt) - 1 :]
        tokens = zip(response.chosen, response.log_probs, recomputed, strict=True)
        assert all(drawn == pytest.approx(now, abs=1e-4) for is_chosen, drawn, now in tokens if is_chosen)
    engine.close()


@pytest.mark.slow
def test_a_program_of_openai_agents_is_recorded_unmodified(run: Run) -> None:
    """Two calls in one turn, a call in the next, the answer, and a second run as a stream."""
    turns = [
        'Both.<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
        '<tool_call>{"name":"multiply","arguments":{"a":6,"b":7}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 5, "b": 42}}</tool_call>',
        "It is 47.",
        "Goodbye!",
    ]
    program = {"python": str(install("agents")), "program": str(Path(__file__).with_name("agents_program.py"))}
    prompt = make_prompt("2+3 + 6*7?", "It is 47.\nGoodbye!\n", **program)
    (episode,) = run("run_program", sampler := Turns(*turns), prompt, max_prompt_length=2000)
    assert (episode.reward, episode.failure) == (1.0, None)
    calculated, goodbye = episode.response.sequences
    assert learned(calculated) == "".join(f"{turn}<|eos|>" for turn in turns[:3])
    assert learned(goodbye) == "Goodbye!<|eos|>"
    text = decode(calculated.token_ids)
    assert [text.count(f"<tool_response>{value}</tool_response>") for value in (5, 42, 47)] == [1, 1, 1]
    assert calculated.prompt is not None
    assert "<|system|>Use the tools.<|eos|><|user|>2+3 + 6*7?<|eos|>" in decode(calculated.prompt)
    assert sampler.contexts[2] == [*calculated.prompt, *calculated.token_ids[: -len("It is 47.") - 1]]
