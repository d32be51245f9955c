"""Requests of an agent become sequences of tokens."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import chat_text
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript, Pending
from rlt_trainer.environments.policy_request import PolicyRequest, RequestError, build_message, to_template_messages
from rlt_trainer.environments.tool_calls import ParsedTurn, ToolCall

TOKENIZER = build_byte_tokenizer()
EOS = 257
TEMPLATE = """{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|user|>' }}{% endif %}
{{- '<tool_response>' + m.content + '</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|eos|>' }}{% endif %}
{%- else %}
{{- '<|' + m.role + '|>' + m.content }}
{%- for c in m.tool_calls or [] %}
{{- '<tool_call>{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}</tool_call>' }}
{%- endfor %}
{{- '<|eos|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
"""Renders calls, and the responses of tools together, as Qwen's templates do."""
CALLS = "".join(f'<tool_call>{{"name": "look", "arguments": {{"word": "{word}"}}}}</tool_call>' for word in ("a", "ä"))
TOOLS = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}]


def make_transcript(max_requests: int = 8, max_prompt_length: int = 200, max_response_length: int = 300) -> Any:
    return AgentTranscript(TOKENIZER, TEMPLATE, AgentLimits(max_requests, max_prompt_length, max_response_length))


def begin(transcript: AgentTranscript, messages: list[Any], tools: Any) -> Pending:
    placed = transcript.place(messages, tools)
    return transcript.begin(placed, transcript.tokenize(placed))


def respond(transcript: AgentTranscript, messages: list[Any], text: str, *, tools: Any = ()) -> dict[str, Any]:
    """Return the message of the turn `text`."""
    tokens = (*text.encode(), EOS)
    numbers = iter("12345678")
    calls = [ToolCall("look", {"word": word}) for word in ("a", "ä")] if text == CALLS else []
    message = build_message(
        ParsedTurn("" if calls else text, calls=calls), text, PolicyRequest(messages, tools), lambda: next(numbers)
    )
    transcript.complete(begin(transcript, messages, tools), Response(tokens, (-0.5,) * len(tokens)), message)
    return message


def test_calls_and_their_responses_continue_as_the_template_renders_them() -> None:
    transcript = make_transcript()
    messages = [{"role": "user", "content": "q"}]
    messages.append(respond(transcript, messages, CALLS, tools=TOOLS))
    messages += [{"role": "tool", "tool_call_id": each, "content": each} for each in "12"]
    pending = begin(transcript, messages, TOOLS)
    rendered = chat_text(to_template_messages(messages), TOKENIZER, TEMPLATE, tools=TOOLS)
    assert TOKENIZER.decode(list(pending.context)) == rendered
    assert to_template_messages(messages)[-1]["name"] == "look"


def test_content_in_parts_and_the_order_of_keys_do_not_change_a_message() -> None:
    transcript = make_transcript()
    answer = respond(transcript, [{"role": "user", "content": "q"}], "a")
    parts = [{"type": "text", "text": "q"}]
    changed = [{"content": parts, "role": "user"}, {"content": [{"type": "text", "text": answer["content"]}], **answer}]
    respond(transcript, [*changed, {"role": "user", "content": "r"}], "b")
    response = transcript.end()
    assert response is not None
    assert (response.num_turns, response.earlier) == (2, ())


def test_other_tools_begin_a_sequence() -> None:
    transcript = make_transcript()
    messages = [{"role": "user", "content": "q"}]
    messages.append(respond(transcript, messages, "a", tools=TOOLS))
    respond(transcript, messages, "b")
    response = transcript.end()
    assert response is not None
    assert len(response.sequences) == 2


def test_a_request_that_continues_a_waiting_one_begins_a_sequence_until_that_is_cancelled() -> None:
    transcript = make_transcript()
    messages = [{"role": "user", "content": "q"}]
    messages += [respond(transcript, messages, "a"), {"role": "user", "content": "r"}]
    waiting = begin(transcript, messages, ())
    assert begin(transcript, messages, ()).sequence is not waiting.sequence
    transcript.cancel(waiting)
    assert begin(transcript, messages, ()).sequence is waiting.sequence


def test_requests_beyond_the_limits_are_rejected_and_leave_no_trace() -> None:
    transcript = make_transcript(max_requests=2, max_response_length=20)
    messages = [{"role": "user", "content": "q"}]
    messages.append(respond(transcript, messages, "a"))
    long = [*messages, {"role": "user", "content": "x" * 20}]
    with pytest.raises(RequestError, match=r"leave no token for a response: data.maxResponseLength is 20"):
        begin(transcript, long, ())
    assert transcript.has_reached_limit
    pending = begin(transcript, [*messages, {"role": "user", "content": "r"}], ())
    assert (pending.number, pending.max_tokens) == (1, 20 - 2 - 4)  # the first turn, and an observation of four tokens
    with pytest.raises(RequestError, match=r"The episode has had all its requests: rollout.multiTurn.maxTurns is 2"):
        begin(transcript, messages, ())
