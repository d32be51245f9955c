"""Anthropic's Messages API: its requests, responses, events and errors. Pure.

Source: https://docs.anthropic.com/en/api/messages and https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field

from rlt_trainer.environments.policy_request import (
    MODEL,
    Message,
    PolicyRequest,
    PolicyTurn,
    RequestError,
    Stop,
    ToolFunction,
    describe_tool,
    format_event,
    may_call_tools,
)

BILLING_HEADER = "x-anthropic-billing-header"
"""The start of a system text of Claude Code that contains a hash of each request. It would change the history."""
ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
"""Status -> type of the error: https://docs.anthropic.com/en/api/errors."""


class TextBlock(BaseModel):
    """A text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(BaseModel):
    """The reasoning of an earlier turn. It is ignored: a turn that continues has its tokens."""

    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(BaseModel):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolReferenceBlock(BaseModel):
    """The name of a tool that a search found: all tools are described to the policy already."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        """The response of the search, as text."""
        return self.tool_name


def _to_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


ResultPart = Annotated[TextBlock | ToolReferenceBlock, Field(discriminator="type")]


class ToolResultBlock(BaseModel):
    """The response of a tool. is_error is ignored: the content describes the error."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[list[ResultPart], BeforeValidator(_to_blocks)] = []


Texts = Annotated[list[TextBlock], BeforeValidator(_to_blocks)]
UserBlock = Annotated[TextBlock | ToolResultBlock, Field(discriminator="type")]
AssistantBlock = Annotated[TextBlock | ThinkingBlock | ToolUseBlock, Field(discriminator="type")]


class SystemMessage(BaseModel):
    """A system message among the others, as Claude Code sends them."""

    role: Literal["system"]
    content: Texts

    def convert(self) -> Iterator[Message]:
        """Yield the messages of Chat Completions."""
        if text := join_system(self.content):
            yield {"role": "system", "content": text}


class UserMessage(BaseModel):
    """Responses of tools and text."""

    role: Literal["user"]
    content: Annotated[list[UserBlock], BeforeValidator(_to_blocks)]

    def convert(self) -> Iterator[Message]:
        """Yield the messages of Chat Completions: one for each response of a tool, and the text after them."""
        for block in self.content:
            if isinstance(block, ToolResultBlock):
                content = "".join(part.text for part in block.content)
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
        if texts := [block.text for block in self.content if isinstance(block, TextBlock)]:
            yield {"role": "user", "content": "".join(texts)}


class AssistantMessage(BaseModel):
    """A turn: text and calls of tools."""

    role: Literal["assistant"]
    content: Annotated[list[AssistantBlock], BeforeValidator(_to_blocks)]

    def convert(self) -> Iterator[Message]:
        """Yield the message of Chat Completions."""
        text = "".join(block.text for block in self.content if isinstance(block, TextBlock))
        calls = [_convert_call(block) for block in self.content if isinstance(block, ToolUseBlock)]
        yield {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _convert_call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def join_system(texts: Sequence[TextBlock]) -> str:
    """Return the text of a system message."""
    return "".join(block.text for block in texts if not block.text.startswith(BILLING_HEADER))


InputMessage = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


class AnthropicTool(BaseModel):
    """A tool that the policy may call. Tools that run on Anthropic's servers have other types."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]


class ToolChoice(BaseModel):
    """Which tools may be called."""

    type: str
    disable_parallel_tool_use: bool | None = None


class CountRequest(BaseModel):
    """The body of a request for the number of its tokens: the part that all requests have."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {"mcp_servers": (None, []), "container": (None,)}

    model: str
    messages: Annotated[list[InputMessage], Field(min_length=1)]
    system: Texts | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: ToolChoice | None = None
    output_config: dict[str, Any] | None = None

    def to_policy_request(self) -> PolicyRequest:
        """Convert it. Raises RequestError."""
        output_format = (self.output_config or {}).get("format")
        if output_format is not None:
            message = f"output_config.format: {json.dumps(output_format)[:80]} is not supported. Remove it."
            raise RequestError(message, "unsupported_parameter", param="output_config.format")
        tools = self.tools if may_call_tools(self.tool_choice and self.tool_choice.type) else None
        functions = [
            ToolFunction(name=tool.name, description=tool.description, parameters=tool.input_schema)
            for tool in tools or []
        ]
        system = join_system(self.system or [])
        return PolicyRequest(
            [
                *([{"role": "system", "content": system}] if system else []),
                *(each for message in self.messages for each in message.convert()),
            ],
            [describe_tool(function) for function in functions],
            parallel_calls=not (self.tool_choice and self.tool_choice.disable_parallel_tool_use),
        )


class Thinking(BaseModel):
    """Whether the response has the reasoning of the turn. The policy decides how much it has."""

    type: str


class MessagesRequest(CountRequest):
    """The body of a request. Sampling parameters, effort and context_management are ignored."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Stop | None = None
    thinking: Thinking | None = None
    stream: bool | None = False

    def to_policy_request(self) -> PolicyRequest:
        """Convert it. Raises RequestError."""
        request = super().to_policy_request()
        return replace(request, max_tokens=self.max_tokens, stop=tuple(self.stop_sequences or ()))

    def build_response(self, turn: PolicyTurn) -> dict[str, Any]:
        """Build the body of a response."""
        reason = _build_stop_reason(turn)
        return {
            "id": f"msg_{turn.number}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [*self._build_thinking(turn.message), *_build_content(turn.message)],
            "stop_reason": reason,
            "stop_sequence": turn.stop_text if reason == "stop_sequence" else None,
            "usage": {
                "input_tokens": turn.prompt_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": turn.completion_tokens,
            },
        }

    def _build_thinking(self, message: Message) -> list[dict[str, Any]]:
        """Return the block of the reasoning, if the request wants it: clients without thinking do not expect it."""
        text = message.get("reasoning_content")
        if not text or self.thinking is None or self.thinking.type == "disabled":
            return []
        return [{"type": "thinking", "thinking": text, "signature": ""}]

    def build_events(self, turn: PolicyTurn) -> Iterator[str]:
        """Yield the events of a stream. A text or a call is one event: the turn is complete before it is sent."""
        whole = self.build_response(turn)
        ended = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        begun = {**whole, "content": [], **dict.fromkeys(ended), "usage": {**whole["usage"], "output_tokens": 0}}
        yield _format(type="message_start", message=begun)
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                empty = {**block, "text": ""}
                delta = {"type": "text_delta", "text": block["text"]}
            elif block["type"] == "thinking":
                empty = {**block, "thinking": ""}
                delta = {"type": "thinking_delta", "thinking": block["thinking"]}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _format(type="content_block_start", index=index, content_block=empty)
            yield _format(type="content_block_delta", index=index, delta=delta)
            yield _format(type="content_block_stop", index=index)
        yield _format(type="message_delta", delta=ended, usage=whole["usage"])
        yield _format(type="message_stop")


def _build_content(message: Message) -> list[dict[str, Any]]:
    text = message["content"]
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return [*([{"type": "text", "text": text}] if text else []), *calls]


def _build_stop_reason(turn: PolicyTurn) -> str:
    if turn.finish_reason == "stop":
        return "end_turn" if turn.stop_text is None else "stop_sequence"
    return "tool_use" if turn.finish_reason == "tool_calls" else "max_tokens"


def _format(**content: Any) -> str:
    return format_event(content, content["type"])


def build_anthropic_error(error: RequestError) -> dict[str, Any]:
    """Build the body of the response to a request that is rejected.

    Claude Code recognizes a history that is too long by the text that the message of Anthropic's API begins with.
    """
    prefix = "prompt is too long: " if error.code == "context_length_exceeded" else ""
    kind = ERROR_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": f"{prefix}{error}"}, "request_id": None}
