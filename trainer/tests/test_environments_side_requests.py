"""Requests of agents that are not the work of the policy: they are answered and recorded, and not trained on.

The bodies have the fields that OpenCode 1.18, Claude Code 2.1 and Codex 0.171 send, with shortened texts and one tool.
They are written by hand, not recorded.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from test_environments_agent_apis import CALL, PARAMETERS, TOKENIZER, Served, serve

from rlt_trainer.batches.response import Response

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"

FUNCTION: Any = {"type": "function", "function": {"name": "look", "description": "Look up.", "parameters": PARAMETERS}}
OPENCODE: dict[str, Any] = {"model": "policy", "stream": True, "stream_options": {"include_usage": True}}
OPENCODE_TITLE = {
    **OPENCODE,
    "max_tokens": 500,
    "messages": [
        {"role": "system", "content": "You are a title generator. You output ONLY a thread title. Nothing else."},
        {"role": "user", "content": "Generate a title for this conversation:\n"},
        {"role": "user", "content": "hund?"},
    ],
}
OPENCODE_WORK = {
    **OPENCODE,
    "max_tokens": 500,
    "messages": [{"role": "system", "content": "You are opencode."}, {"role": "user", "content": "hund?"}],
    "tools": [FUNCTION],
    "tool_choice": "auto",
}
CLAUDE: dict[str, Any] = {
    "model": "policy",
    "max_tokens": 500,
    "stream": True,
    "metadata": {"user_id": "user_1"},
}
CLAUDE_SYSTEM = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332"},
    {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."},
]
CACHED = {"type": "text", "text": "hund?", "cache_control": {"type": "ephemeral"}}
CLAUDE_TOPIC = {
    **CLAUDE,
    "system": [*CLAUDE_SYSTEM, {"type": "text", "text": "Analyze if this message indicates a new topic."}],
    "messages": [{"role": "user", "content": "hund?"}],
    "tools": [],
    "temperature": 0,
}
CLAUDE_QUOTA = {**CLAUDE, "max_tokens": 1, "stream": False, "messages": [{"role": "user", "content": "quota"}]}
CLAUDE_WORK = {
    **CLAUDE,
    "system": CLAUDE_SYSTEM,
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hund?", "cache_control": {"type": "ephemeral"}}]}
    ],
    "tools": [{"name": "look", "description": "Look up.", "input_schema": PARAMETERS}],
    "thinking": {"type": "adaptive"},
}
CLAUDE_COUNT = {name: CLAUDE_WORK[name] for name in ("model", "messages", "tools", "thinking")}
CODEX: dict[str, Any] = {
    "model": "policy",
    "instructions": "You are Codex.",
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "parallel_tool_calls": False,
}
CODEX_TOOL = {"type": "function", "name": "look", "description": "Look up.", "strict": False, "parameters": PARAMETERS}


def item(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


CODEX_WORK = {**CODEX, "input": [item("user", "hund?")], "tools": [CODEX_TOOL, {"type": "web_search"}]}


async def post(served: Served, path: str, body: dict[str, Any]) -> str:
    """Return the response to a request."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(served.url + path, json=body, headers={"x-api-key": served.key}) as response,
    ):
        text = await response.text()
        assert response.status == 200, text
        return text


def end(served: Served) -> tuple[list[str], list[str]]:
    """Return the texts of the sequences that are trained on, and of the others."""

    def read(sequences: tuple[Response, ...]) -> list[str]:
        return [str(TOKENIZER.decode(list(each.token_ids))).removesuffix("<|eos|>") for each in sequences]

    response = served.episode.transcript.end()
    assert response is not None
    return read(response.sequences), read(response.side)


@pytest.mark.parametrize(
    ("path", "side", "work"),
    [
        (CHAT, OPENCODE_TITLE, OPENCODE_WORK),
        (MESSAGES, CLAUDE_TOPIC, CLAUDE_WORK),
    ],
    ids=["OpenCode", "Claude Code"],
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_title_is_answered_and_not_trained_on(
    path: str, side: dict[str, Any], work: dict[str, Any], is_first: bool
) -> None:
    """Also if it is the latest request: the rewards score the work."""
    turns = ["A title", "dog"] if is_first else ["dog", "A title"]
    async with serve(*turns) as served:
        for body in (side, work) if is_first else (work, side):
            assert ("A title" if body is side else "dog") in await post(served, path, body)
        assert end(served) == (["dog"], ["A title"])


async def test_a_quota_a_count_and_a_list_of_models_are_not_trained_on() -> None:
    """Claude Code tests its quota with one token, and counts tokens. Codex lists models."""
    async with serve("x", "dog") as served:
        await post(served, MESSAGES, CLAUDE_QUOTA)
        assert json.loads(await post(served, f"{MESSAGES}/count_tokens", CLAUDE_COUNT))["input_tokens"] > 0
        headers = {"Authorization": f"Bearer {served.key}"}
        async with aiohttp.ClientSession() as session, session.get(f"{served.url}/v1/models", headers=headers) as found:
            assert [model["id"] for model in (await found.json())["data"]] == ["policy"]
        await post(served, MESSAGES, CLAUDE_WORK)
        assert end(served) == (["dog"], ["x"])


async def test_a_summary_that_the_next_request_has_is_trained_on() -> None:
    """Codex asks for it without tools. Its next history begins with it."""
    async with serve("dog", "A summary", "cat") as served:
        await post(served, RESPONSES, CODEX_WORK)
        history = [item("user", "hund?"), item("assistant", "dog"), item("user", "Summarize the work.")]
        await post(served, RESPONSES, {**CODEX, "input": history, "tools": []})
        continued = [item("user", "Another model has begun: A summary"), item("user", "katze?")]
        await post(served, RESPONSES, {**CODEX_WORK, "input": continued})
        assert end(served) == (["dog", "A summary", "cat"], [])


@pytest.mark.parametrize("answer", ["the plan", "  the plan\n"])
async def test_a_plan_that_a_later_request_has_is_trained_on(answer: str) -> None:
    plan = {"model": "policy", "messages": [{"role": "user", "content": "Plan."}]}
    work = {**OPENCODE_WORK, "messages": [{"role": "user", "content": "Do this: the plan."}]}
    async with serve(answer, "dog") as served:
        await post(served, CHAT, plan)
        await post(served, CHAT, work)
        assert end(served) == ([answer, "dog"], [])


async def test_an_answer_without_tools_after_calls_is_trained_on() -> None:
    async with serve(CALL, "dog") as served:
        completion = await served.openai.chat.completions.create(
            model="policy", messages=OPENCODE_WORK["messages"], tools=[FUNCTION]
        )
        message = completion.choices[0].message.model_dump(exclude_none=True)
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "1 dog"}
        history = [*OPENCODE_WORK["messages"], message, result]
        await post(served, CHAT, {**OPENCODE_WORK, "messages": history, "tool_choice": "none"})
        assert end(served) == ([CALL, "dog"], [])


@pytest.mark.parametrize("tools", [[], [FUNCTION]])
async def test_requests_of_an_agent_that_all_have_tools_or_none_are_trained_on(tools: list[Any]) -> None:
    async with serve("one", "two") as served:
        for text in "ab":
            body = {"model": "policy", "messages": [{"role": "user", "content": text}], "tools": tools}
            await post(served, CHAT, body)
        assert end(served) == (["one", "two"], [])


async def test_a_conversation_without_tools_is_trained_on() -> None:
    """A sub-agent of two turns."""
    async with serve("one", "two", "dog") as served:
        messages: list[Any] = [{"role": "user", "content": "a"}]
        await post(served, CHAT, {"model": "policy", "messages": messages})
        messages += [{"role": "assistant", "content": "one"}, {"role": "user", "content": "b"}]
        await post(served, CHAT, {"model": "policy", "messages": messages})
        await post(served, CHAT, OPENCODE_WORK)
        sequences, side = end(served)
        assert (len(sequences), side) == (2, [])
