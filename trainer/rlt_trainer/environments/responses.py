"""OpenAI's Responses API without stored state: its requests, responses and events. Pure.

Source: https://platform.openai.com/docs/api-reference/responses and https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field

from rlt_trainer.environments.policy_request import (
    MODEL,
    Message,
    PolicyRequest,
    PolicyTurn,
    RequestError,
    ToolFunction,
    describe_tool,
    format_event,
    may_call_tools,
)

LOGPROBS = "message.output_text.logprobs"


class TextPart(BaseModel):
    """A text of the agent (input_text) or of the policy (output_text)."""

    type: Literal["input_text", "output_text"]
    text: str


def _to_parts(content: Any) -> Any:
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


Texts = Annotated[list[TextPart], BeforeValidator(_to_parts)]


class MessageItem(BaseModel):
    """A message."""

    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: Texts


class CallItem(BaseModel):
    """A call of a tool."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class OutputItem(BaseModel):
    """The response of a tool."""

    type: Literal["function_call_output"]
    call_id: str
    output: Texts


class ReasoningItem(BaseModel):
    """The reasoning of an earlier turn. It is ignored: a turn that continues has its tokens."""

    type: Literal["reasoning"]


Item = Annotated[MessageItem | CallItem | OutputItem | ReasoningItem, Field(discriminator="type")]


def _to_items(given: Any) -> Any:
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        return given
    return [{"type": "message", **item} if isinstance(item, dict) and "role" in item else item for item in given]


class FunctionTool(ToolFunction):
    """A tool that the policy may call."""

    type: Literal["function"]


class NamespaceTool(BaseModel):
    """Tools of Codex that have names within a namespace, such as an MCP server's."""

    type: Literal["namespace"]
    name: str
    tools: list[FunctionTool]


class WebSearchTool(BaseModel):
    """A tool that runs on OpenAI's servers, which Codex always sends. It is not described to the policy."""

    type: Literal["web_search"]


Tool = Annotated[FunctionTool | NamespaceTool | WebSearchTool, Field(discriminator="type")]


class ResponsesRequest(BaseModel):
    """The body of a request. Sampling parameters, reasoning and store are ignored."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "background": (None, False),
        "prompt": (None,),
        "truncation": (None, "disabled"),
        "top_logprobs": (None, 0),
    }

    model: str
    input: Annotated[list[Item], BeforeValidator(_to_items), Field(min_length=1)]
    instructions: str | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    include: list[str] | None = None
    text: dict[str, Any] | None = None
    stream: bool | None = False

    def to_policy_request(self) -> PolicyRequest:
        """Convert it. Raises RequestError."""
        self._reject_unsupported()
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        return PolicyRequest(
            [*system, *_convert_items(self.input)],
            self._describe_tools() if may_call_tools(self.tool_choice) else [],
            self.max_output_tokens,
            parallel_calls=self.parallel_tool_calls is not False,
        )

    def _reject_unsupported(self) -> None:
        output_format = (self.text or {}).get("format")
        for field, value, fix in (
            ("previous_response_id", self.previous_response_id, "No response is stored: send all items in input."),
            ("conversation", self.conversation, "No conversation is stored: send all items in input."),
            ("text.format", None if output_format == {"type": "text"} else output_format, "Remove it."),
            ("include", LOGPROBS if LOGPROBS in (self.include or ()) else None, "Remove it."),
        ):
            if value is not None:
                message = f"{field}: {json.dumps(value)[:80]} is not supported. {fix}"
                raise RequestError(message, "unsupported_parameter", param=field)

    def _describe_tools(self) -> list[dict[str, Any]]:
        described = []
        for tool in self.tools or ():
            if isinstance(tool, FunctionTool):
                described.append(describe_tool(tool))
            elif isinstance(tool, NamespaceTool):
                flat = (each.model_copy(update={"name": flatten_name(tool.name, each.name)}) for each in tool.tools)
                described += map(describe_tool, flat)
        return described

    def build_response(self, turn: PolicyTurn) -> dict[str, Any]:
        """Build the body of a response. It does not repeat the instructions and tools."""
        is_complete = turn.finish_reason != "length"
        return {
            "id": f"resp_{turn.number}",
            "object": "response",
            "created_at": turn.created,
            "status": "completed" if is_complete else "incomplete",
            "error": None,
            "incomplete_details": None if is_complete else {"reason": "max_output_tokens"},
            "instructions": None,
            "metadata": {},
            "model": MODEL,
            "output": self._build_output(turn),
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": None,
            "tool_choice": self.tool_choice or "auto",
            "tools": [],
            "top_p": None,
            "usage": {
                "input_tokens": turn.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": turn.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
                "total_tokens": turn.prompt_tokens + turn.completion_tokens,
            },
        }

    def _build_output(self, turn: PolicyTurn) -> list[dict[str, Any]]:
        names = {
            flatten_name(tool.name, each.name): {"name": each.name, "namespace": tool.name}
            for tool in self.tools or ()
            if isinstance(tool, NamespaceTool)
            for each in tool.tools
        }
        calls = turn.message.get("tool_calls", ())
        items = [
            {
                "id": f"fc_{turn.number}_{index}",
                "type": "function_call",
                "status": "completed",
                "call_id": call["id"],
                "arguments": call["function"]["arguments"],
                **names.get(call["function"]["name"], {"name": call["function"]["name"]}),
            }
            for index, call in enumerate(calls)
        ]
        text = turn.message["content"]
        if text or not calls:
            message = {
                "id": f"msg_{turn.number}",
                "type": "message",
                "role": "assistant",
                "status": "incomplete" if turn.finish_reason == "length" else "completed",
                "content": [_build_text(text)],
            }
            items.insert(0, message)
        if reasoning := turn.message.get("reasoning_content"):
            content = [{"type": "reasoning_text", "text": reasoning}]
            items.insert(0, {"id": f"rs_{turn.number}", "type": "reasoning", "summary": [], "content": content})
        return items

    def build_events(self, turn: PolicyTurn) -> Iterator[str]:
        """Yield the events of a stream. A text or a call is one event: the turn is complete before it is sent."""
        for number, event in enumerate(_list_events(self.build_response(turn))):
            yield format_event({**event, "sequence_number": number}, event["type"])


def flatten_name(namespace: str, name: str) -> str:
    """Return the name of a tool for the policy, as in vLLM."""
    return f"{namespace}__{name}"


def _convert_items(items: Sequence[Item]) -> list[Message]:
    """Return the messages of Chat Completions. Calls belong to the text of the policy before them."""
    messages: list[Message] = []
    for item in items:
        if isinstance(item, CallItem):
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            name = flatten_name(item.namespace, item.name) if item.namespace else item.name
            function = {"name": name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif isinstance(item, OutputItem):
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _join(item.output)})
        elif isinstance(item, MessageItem):
            messages.append({"role": item.role, "content": _join(item.content)})
    return messages


def _join(texts: Sequence[TextPart]) -> str:
    return "".join(part.text for part in texts)


def _build_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _list_events(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        change: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        begun_item = {**item, "status": "in_progress", **change}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun_item}
        yield from LIST_EVENTS[item["type"]](item, place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _list_text_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    (part,) = item["content"]
    place = {**place, "content_index": 0}
    yield {"type": "response.content_part.added", **place, "part": _build_text("")}
    yield {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _list_call_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    arguments = item["arguments"]
    yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
    yield {"type": "response.function_call_arguments.done", **place, "arguments": arguments, "name": item["name"]}


def _list_reasoning_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    (part,) = item["content"]
    place = {**place, "content_index": 0}
    yield {"type": "response.reasoning_text.delta", **place, "delta": part["text"]}
    yield {"type": "response.reasoning_text.done", **place, "text": part["text"]}


LIST_EVENTS = {
    "message": _list_text_events,
    "function_call": _list_call_events,
    "reasoning": _list_reasoning_events,
}
"""Type of an item -> the events with its content."""
