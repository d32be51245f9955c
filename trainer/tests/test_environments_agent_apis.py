"""The APIs of the agent server, with the clients of OpenAI and Anthropic as judges: each turn keeps its tokens."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web
from anthropic.types import Message
from openai.types.responses import Response as OpenAIResponse
from tool_conversations import open_parser

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.environments import agent_server
from rlt_trainer.environments.agent_server import AgentEpisode, open_agent_server
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript
from rlt_trainer.environments.anthropic_messages import MessagesRequest
from rlt_trainer.environments.policy_request import to_template_messages
from rlt_trainer.environments.responses import ResponsesRequest
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.stop_strings import ends_with_stop_string

TOKENIZER = build_byte_tokenizer()
EOS = 257
CALL = '<tool_call>{"name": "look", "arguments": {"word":   "hund"}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}}}
ANTHROPIC_TOOL: Any = {"name": "look", "description": "Look up.", "input_schema": PARAMETERS, "defer_loading": True}
OPENAI_TOOL: Any = {"type": "function", "name": "look", "description": "Look up.", "parameters": PARAMETERS}
USER: Any = {"role": "user", "content": "hund?"}


class Turns:
    """A Sampler with fixed turns, which end with stop strings as in the engines."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)
        self.contexts: list[list[int]] = []

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        self.contexts.append(list(prompt))
        whole = [*next(self._turns).encode(), EOS][:max_tokens]
        ends = (end for end in range(1, len(whole)) if self._is_stopped(whole[:end], sampling.stop))
        tokens = whole[: next(ends, len(whole))]
        is_cut = tokens[-1] != EOS and not self._is_stopped(tokens, sampling.stop)
        return Response(tokens, [-0.5] * len(tokens), finish_reason="length" if is_cut else "stop")

    def _is_stopped(self, tokens: Sequence[int], stop: tuple[str, ...]) -> bool:
        return bool(stop) and ends_with_stop_string(tokens, stop, TOKENIZER)


@dataclass
class Served:
    """An episode, and its clients."""

    url: str
    key: str
    sampler: Turns
    episode: AgentEpisode
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic

    def learned(self) -> list[str]:
        """The generated text of each sequence."""
        response = self.episode.transcript.end()
        assert response is not None
        return [
            str(TOKENIZER.decode([token for token, chosen in zip(each.token_ids, each.chosen, strict=True) if chosen]))
            for each in response.sequences
        ]


@asynccontextmanager
async def serve(
    *turns: str, max_prompt_length: int = 2000, reasoning_parser: str | None = None
) -> AsyncIterator[Served]:
    sampler = Turns(*turns)
    transcript = AgentTranscript(TOKENIZER, None, AgentLimits(8, max_prompt_length, 2000))
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=2000, stop_token_ids=(EOS,))
    given = MultiTurn.model_validate({"agent": {"name": "my_agent:solve"}, "reasoningParser": reasoning_parser})
    async with open_agent_server() as server:
        with ExitStack() as stack:
            parser = stack.enter_context(open_parser(given))
            episode = AgentEpisode(sampler, transcript, seed=0, sampling=sampling, tokenizer=TOKENIZER, parser=parser)
            key = stack.enter_context(server.serve(episode))
            url = server.base_url
            async with (
                openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as for_openai,
                anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as for_anthropic,
            ):
                yield Served(url, key, sampler, episode, for_openai, for_anthropic)


# Anthropic's Messages


async def ask_anthropic(served: Served, *, stream: bool, **body: Any) -> Message:
    body = {"model": "policy", "max_tokens": 500, **body}
    if not stream:
        message: Message = await served.anthropic.messages.create(**body)
        return message
    async with served.anthropic.messages.stream(**body) as events:
        return await events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_of_anthropic_is_one_sequence(stream: bool) -> None:
    """As Claude Code sends it: a header with a hash, system messages among the others, and moving cache_control."""
    async with serve(f"I look.\n{CALL}", "dog") as served:
        options: dict[str, Any] = {"tools": [ANTHROPIC_TOOL], "stream": stream}
        blocks: Any = [{"type": "text", "text": "hund?", "cache_control": {"type": "ephemeral"}}]
        messages: list[Any] = [{"role": "user", "content": blocks}, {"role": "system", "content": "Be brief."}]
        systems: list[Any] = [
            [{"type": "text", "text": f"x-anthropic-billing-header: {number}"}, {"type": "text", "text": "Translate."}]
            for number in range(2)
        ]
        first = await ask_anthropic(served, messages=messages, system=systems[0], **options)
        text, call = first.content
        assert text.type == "text"
        assert call.type == "tool_use"
        assert (text.text, first.stop_reason) == ("I look.\n", "tool_use")
        assert (call.name, call.input) == ("look", {"word": "hund"})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "1 dog"}]}
        messages[0] = USER
        messages += [
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
        ]
        second = await ask_anthropic(served, messages=messages, system=systems[1], **options)
        assert (second.stop_reason, second.usage.output_tokens) == ("end_turn", len("dog") + 1)
        assert second.usage.input_tokens == len(served.sampler.contexts[1])
        assert served.learned() == [f"I look.\n{CALL}<|eos|>dog<|eos|>"]
        begin, end = (str(TOKENIZER.decode(context)) for context in served.sampler.contexts)
        assert "<|system|>Translate.<|eos|><|user|>hund?<|eos|><|system|>Be brief.<|eos|><|assistant|>" in begin
        response = "<|user|><tool_response>1 dog</tool_response><|eos|><|user|>So?<|eos|><|assistant|>"
        assert end == f"{begin}I look.\n{CALL}<|eos|>{response}"


async def test_the_events_of_anthropic_are_the_documented_ones() -> None:
    async with serve(f"I look.{CALL}") as served:
        stream: Any = await served.anthropic.messages.create(
            model="policy", max_tokens=500, messages=[USER], tools=[ANTHROPIC_TOOL], stream=True
        )
        kinds = [event.type async for event in stream]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block, *block, "message_delta", "message_stop"]


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_sequences_end_a_turn_and_stay_in_its_tokens(stream: bool) -> None:
    async with serve("a\nObservation: b", "a\nObservation: b") as served:
        stop: Any = {"stop_sequences": ["Observation:", "unlikely"], "messages": [USER], "stream": stream}
        message = await ask_anthropic(served, **stop)
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "Observation:")
        assert [block.text for block in message.content if block.type == "text"] == ["a\n"]
        completion = await served.openai.chat.completions.create(model="policy", messages=[USER], stop="Observation:")
        assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("a\n", "stop")
        assert served.learned() == ["a\nObservation:", "a\nObservation:"]


async def test_a_turn_at_its_maximum_of_tokens_has_the_reason() -> None:
    async with serve("abcdef", "abcdef") as served:
        message = await ask_anthropic(served, messages=[USER], max_tokens=3, stream=False)
        assert message.stop_reason == "max_tokens"
        response = await served.openai.responses.create(model="policy", input="b", max_output_tokens=3)
        assert response.incomplete_details is not None
        assert (response.status, response.output_text) == ("incomplete", "abc")
        assert response.incomplete_details.reason == "max_output_tokens"


async def test_counted_tokens_are_the_tokens_of_the_request() -> None:
    async with serve("dog", "b") as served:
        first = await ask_anthropic(served, messages=[USER], system="s", stream=False)
        messages: Any = [USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": "b"}]
        count = await served.anthropic.messages.count_tokens(model="policy", messages=messages, system="s")
        second = await ask_anthropic(served, messages=messages, system="s", stream=False)
        assert count.input_tokens == second.usage.input_tokens == len(served.sampler.contexts[1])
        assert served.learned() == ["dog<|eos|>b<|eos|>"]  # counting adds no request


IMAGE = {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "messages.0.user.content.0: 'image' is not a supported type",
        ),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages.0: 'robot' is not a supported role. Use 'user'"),
        ({"tools": [SEARCH]}, "tools.0.type: Input should be 'custom'"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: .*any.* a call cannot be guaranteed.* Use auto or none"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format: .*Remove it"),
        ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        ({"messages": [{"role": "user", "content": "x" * 99}]}, "prompt is too long: The messages have 103 tokens"),
    ],
)
async def test_an_invalid_request_is_an_error_in_the_schema_of_anthropic(body: dict[str, Any], message: str) -> None:
    async with serve("a", max_prompt_length=90) as served:
        with pytest.raises(anthropic.BadRequestError, match=message) as caught:
            await ask_anthropic(served, **{"messages": [USER], "stream": False, **body})
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["error"]["type"] == "invalid_request_error"
        assert not served.sampler.contexts


# OpenAI's Responses


async def ask_responses(served: Served, *, stream: bool, **body: Any) -> OpenAIResponse:
    if not stream:
        response: OpenAIResponse = await served.openai.responses.create(model="policy", **body)
        return response
    async with served.openai.responses.stream(model="policy", **body) as events:
        return await events.get_final_response()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_of_responses_is_one_sequence(stream: bool) -> None:
    """As Codex sends it: all items in each request, tools in namespaces, and a tool of OpenAI's servers."""
    call = CALL.replace("look", "books__look")
    async with serve(f"I look.{call}{call}", "dog") as served:
        items: list[Any] = [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            USER,
        ]
        namespace = {"type": "namespace", "name": "books", "description": "Books.", "tools": [OPENAI_TOOL]}
        options: dict[str, Any] = {
            "instructions": "Translate.",
            "tools": [namespace, {"type": "web_search"}],
            "tool_choice": "auto",
            "include": ["reasoning.encrypted_content"],
            "store": False,
            "stream": stream,
        }
        first = await ask_responses(served, input=items, **options)
        text, *calls = first.output
        assert first.output_text == "I look."
        for each in calls:
            assert each.type == "function_call"
            assert (each.name, each.namespace, json.loads(each.arguments)) == ("look", "books", {"word": "hund"})
        items += [text.model_dump(exclude_none=True), *(each.model_dump(exclude_none=True) for each in calls)]
        items += [
            {"type": "function_call_output", "call_id": each.call_id, "output": "dog"}
            for each in calls
            if each.type == "function_call"
        ]
        second = await ask_responses(served, input=items, **options)
        assert (second.status, second.output_text) == ("completed", "dog")
        assert second.usage is not None
        assert second.usage.input_tokens == len(served.sampler.contexts[1])
        assert served.learned() == [f"I look.{call}{call}<|eos|>dog<|eos|>"]
        begin, end = (str(TOKENIZER.decode(context)) for context in served.sampler.contexts)
        assert '"name": "books__look"' in begin
        assert "web_search" not in begin
        assert "<|system|>Translate.<|eos|><|system|>Be brief.<|eos|><|user|>hund?<|eos|><|assistant|>" in begin
        assert end.startswith(f"{begin}I look.{call}{call}<|eos|>")


async def test_the_events_of_responses_are_the_documented_ones() -> None:
    async with serve(f"I look.{CALL}") as served:
        stream: Any = await served.openai.responses.create(
            model="policy", input="hund?", tools=[OPENAI_TOOL], stream=True
        )
        events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"previous_response_id": "resp_1"},
            'previous_response_id: "resp_1" is not supported.*send all items in input',
        ),
        ({"conversation": "conv_1"}, "conversation: .*send all items in input"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input.0: 'item_reference' is not a supported type. Use "),
        (
            {"tools": [{"type": "file_search", "vector_store_ids": ["a"]}]},
            "tools.0: 'file_search' is not a supported type",
        ),
        ({"tool_choice": "required"}, "tool_choice: .*a call cannot be guaranteed"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format: .*Remove it"),
        ({"background": True}, "background: true is not supported. Remove it"),
    ],
)
async def test_an_invalid_request_for_a_response_is_an_error(body: dict[str, Any], message: str) -> None:
    async with serve("a") as served:
        with pytest.raises(openai.BadRequestError, match=message):
            await ask_responses(served, **{"input": "a", "stream": False, **body})
        assert not served.sampler.contexts


# Reasoning

THOUGHT = "<think>A dog?</think>"


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_apart_from_the_content_and_its_tokens_are_kept(stream: bool) -> None:
    """In each API. The agent returns what it got, and the next turn continues from the recorded tokens."""
    turns = (f"{THOUGHT}I look.{CALL}", f"{THOUGHT}dog")
    async with serve(*turns, reasoning_parser="qwen3") as served:
        options: dict[str, Any] = {"tools": [ANTHROPIC_TOOL], "stream": stream, "thinking": {"type": "adaptive"}}
        first = await ask_anthropic(served, messages=[USER], **options)
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
        thought = first.content[0]
        assert thought.type == "thinking"
        assert thought.thinking == "A dog?"
        content = [block.model_dump(exclude_none=True) for block in first.content]
        results = [{"type": "tool_result", "tool_use_id": first.content[2].id, "content": "dog"}]  # type: ignore[union-attr]
        messages = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
        second = await ask_anthropic(served, messages=messages, **{**options, "thinking": {"type": "disabled"}})
        assert [block.type for block in second.content] == ["text"]
        assert served.learned() == [f"{turns[0]}<|eos|>{turns[1]}<|eos|>"]
    async with serve(*turns, reasoning_parser="qwen3") as served:
        options = {"tools": [OPENAI_TOOL], "stream": stream}
        response = await ask_responses(served, input=[USER], **options)
        reasoning, text, call = response.output
        assert reasoning.type == "reasoning"
        assert reasoning.content is not None
        assert [part.text for part in reasoning.content] == ["A dog?"]
        assert call.type == "function_call"
        items = [item.model_dump(exclude_none=True) for item in (reasoning, text, call)]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "dog"})
        assert (await ask_responses(served, input=[USER, *items], **options)).output_text == "dog"
        assert served.learned() == [f"{turns[0]}<|eos|>{turns[1]}<|eos|>"]
    async with serve(*turns, reasoning_parser="qwen3") as served:
        completion: Any = await served.openai.chat.completions.create(model="policy", messages=[USER])
        assert completion.choices[0].message.reasoning_content == "A dog?"


# What the APIs have in common


async def test_without_parallel_calls_the_message_has_the_first_one() -> None:
    async with serve(CALL + CALL, CALL + CALL) as served:
        response = await served.openai.responses.create(
            model="policy", input="a", tools=[OPENAI_TOOL], parallel_tool_calls=False
        )
        assert [item.type for item in response.output] == ["function_call"]
        choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
        message = await ask_anthropic(
            served, messages=[{"role": "user", "content": "b"}], tools=[ANTHROPIC_TOOL], tool_choice=choice, stream=True
        )
        assert [block.type for block in message.content] == ["tool_use"]
        assert served.learned() == [f"{CALL}{CALL}<|eos|>"] * 2


async def test_both_headers_have_the_key_and_another_key_is_rejected() -> None:
    async with serve("a", "b") as served:
        bearer = served.anthropic.with_options(api_key=None, auth_token=served.key)
        assert (await bearer.messages.create(model="policy", max_tokens=9, messages=[USER])).stop_reason == "end_turn"
        for rejected in (served.anthropic.with_options(api_key="guess"), bearer.with_options(auth_token="guess")):
            with pytest.raises(anthropic.AuthenticationError, match=r"authentication_error.*ANTHROPIC_API_KEY"):
                await rejected.messages.create(model="policy", max_tokens=9, messages=[USER])
        with pytest.raises(anthropic.NotFoundError, match=r"not_found_error.*The model `claude` does not exist"):
            await served.anthropic.messages.create(model="claude", max_tokens=9, messages=[USER])
        with pytest.raises(anthropic.NotFoundError, match=r"not_found_error.*/v1/messages/batches does not exist"):
            await served.anthropic.messages.batches.list()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/chat/completions"])
async def test_a_body_over_the_maximum_is_rejected(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_server, "MAX_BODY_BYTES", 1000)
    async with serve("a") as served, aiohttp.ClientSession(headers={"x-api-key": served.key}) as session:
        async with session.post(served.url + path, data=b" " * 1001) as response:
            assert response.status == 413
            assert "The body has more than 1000 bytes" in (await response.json())["error"]["message"]
        async with session.post(served.url + path, data=b"[" * 1000) as response:
            assert response.status == 400


async def test_a_request_whose_body_is_slow_ends_with_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = asyncio.Event()
    read = web.Request.read

    async def note_and_read(request: web.Request) -> bytes:
        reading.set()
        return await read(request)

    async def send_slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(web.Request, "read", note_and_read)
    async with serve("a") as served, aiohttp.ClientSession(headers={"x-api-key": served.key}) as session:
        request = asyncio.create_task(session.post(f"{served.url}/v1/messages", data=send_slowly()))
        await reading.wait()
        served.episode.cancel()
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(30):
                await request
        assert not served.sampler.contexts


# Recorded requests


RECORDED = Path(__file__).parent / "data" / "agent_requests"
"""Requests of the agents in test_real_agents.py, in their versions, with shortened texts and fewer tools."""
REQUIREMENTS = Path(__file__).parents[2] / "requirements"
PAGE = REQUIREMENTS.parent / "docs/conversations.md"
NPM = {
    "Claude Code": "@anthropic-ai/claude-code-linux-x64",
    "Codex": "@openai/codex",
    "OpenCode": "opencode-linux-x64",
}
CHAT = "/v1/chat/completions"
DONE = "All done."


def read_recorded(name: str) -> list[Any]:
    recorded: list[Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return recorded


def test_the_page_has_the_versions_of_the_agents() -> None:
    lock = (REQUIREMENTS / "npm-agents/package-lock.json").read_text()
    assert "://" not in lock
    pins = json.loads(lock)["packages"][""]["dependencies"]
    npm = {name: pins[package].partition("-")[0] for name, package in NPM.items()}
    requirements = "".join((REQUIREMENTS / f"{name}.txt").read_text() for name in ("agents", "coding-agents"))
    python = dict(re.findall(r"^(mini-swe-agent|openai-agents|smolagents)==(\S+)", requirements, re.MULTILINE))
    rows = re.findall(r"^\| (\S.*) (\d+\.\d+\.\d+) \| [MCR]", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == npm | python


def write_file(tool: str, **arguments: str) -> str:
    return f'<tool_call>{{"name": "{tool}",  "arguments": {json.dumps(arguments)}}}</tool_call>'


@pytest.mark.parametrize(
    ("name", "path", "turns", "end"),
    [
        (
            "claude_code",
            "/v1/messages?beta=true",
            ["I write it." + write_file("Bash", command="echo hi > out.txt", description="Write"), DONE],
            "event: message_stop\n",
        ),
        (
            "codex",
            "/v1/responses",
            ["I write it." + write_file("exec_command", cmd="echo hi > out.txt"), DONE],
            "event: response.completed\n",
        ),
        ("openai_agents", "/v1/responses", [write_file("write", path="out.txt", text="hi"), DONE], '"completed"'),
        ("mini_swe_agent", CHAT, [write_file("bash", command="echo hi > out.txt"), DONE], '"finish_reason": '),
        (
            "opencode",
            CHAT,
            ["A title", write_file("bash", command="echo hi > out.txt", description="Write"), DONE],
            "data: [DONE]\n",
        ),
    ],
)
async def test_recorded_requests_are_one_sequence(name: str, path: str, turns: list[str], end: str) -> None:
    """Without the request of OpenCode for a title."""
    async with serve(*turns) as served:
        await post_recorded(served, name, path, end)
        assert served.learned() == ["".join(f"{turn}<|eos|>" for turn in turns[-2:])]
        response = served.episode.transcript.end()
        assert response is not None
        titles = [str(TOKENIZER.decode(list(each.token_ids))) for each in response.side]
        assert titles == [f"{turn}<|eos|>" for turn in turns[:-2]]


@pytest.mark.parametrize(
    ("name", "turn", "end"),
    [
        ("smolagents_code", "<code>\n1\n</code>", "data: [DONE]\n"),
        ("smolagents_tools", write_file("write", path="out.txt", text="hi"), '"finish_reason": '),
    ],
)
async def test_recorded_requests_with_a_changed_history_are_two_sequences(name: str, turn: str, end: str) -> None:
    """smolagents writes the calls of a turn into its text."""
    async with serve(turn, DONE) as served:
        await post_recorded(served, name, CHAT, end)
        eos = "" if "</code>" in turn else "<|eos|>"  # its stop text
        assert served.learned() == [f"{turn}{eos}", f"{DONE}<|eos|>"]


async def post_recorded(served: Served, name: str, path: str, end: str) -> None:
    async with aiohttp.ClientSession(headers={"x-api-key": served.key}) as session:
        for body in read_recorded(name):
            async with session.post(served.url + path, json=body) as response:
                text = await response.text()
                assert response.status == 200, text
                assert end in text


def test_recorded_requests_have_the_messages_and_tools_of_vllm() -> None:
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest as VllmResponsesRequest
    from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts

    for body in read_recorded("claude_code"):
        ours = MessagesRequest.model_validate(body).to_policy_request()
        theirs = AnthropicServingMessages.to_chat_completion_request(AnthropicMessagesRequest.model_validate(body))
        described = [tool.model_dump() for tool in theirs.tools or []]
        assert to_template_messages(ours.messages) == to_template_messages(to_plain(theirs.messages))
        assert [tool["function"]["name"] for tool in ours.tools] == [tool["function"]["name"] for tool in described]
    for body in read_recorded("codex"):
        ours = ResponsesRequest.model_validate(body).to_policy_request()
        request = VllmResponsesRequest.model_validate(body)
        messages = construct_input_messages(request_instructions=request.instructions, request_input=request.input)
        described = construct_tool_dicts(request.tools, request.tool_choice) or []
        assert to_template_messages(ours.messages) == to_template_messages(to_plain(messages))
        assert [tool["function"]["name"] for tool in ours.tools] == [tool["function"]["name"] for tool in described]


def to_plain(value: Any) -> Any:
    """The JSON values of typed dictionaries."""
    return json.loads(json.dumps(value))
