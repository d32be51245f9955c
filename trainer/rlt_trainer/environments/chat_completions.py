"""OpenAI's Chat Completions API: its requests, responses and errors. Pure.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from rlt_trainer.batches.response import Response
from rlt_trainer.environments.tool_calls import Format, ToolCall, parse_calls

MODEL = "policy"
"""The name of the only model."""

Message = dict[str, Any]

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "stop": (None, [], ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
    "top_logprobs": (None, 0),
    "tool_choice": (None, "auto", "none"),
    "functions": (None, []),
}
"""Parameters that are not supported -> their values without an effect."""


class RequestError(Exception):
    """A request that is rejected. The client must not retry it."""

    def __init__(self, message: str, code: str | None = None, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        kind = "authentication_error" if status == 401 else "invalid_request_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class ToolFunction(BaseModel):
    """The description of a tool."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class ToolDescription(BaseModel):
    """A tool that the policy may call."""

    type: Literal["function"]
    function: ToolFunction


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = False


class ChatRequest(BaseModel):
    """The body of a request. temperature, top_p and seed are ignored: they are the job's."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[ToolDescription] | None = None
    tool_choice: Any = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @property
    def limit(self) -> int | None:
        """The maximum number of tokens of the response. None: as many as the job allows."""
        limits = [limit for limit in (self.max_completion_tokens, self.max_tokens) if limit is not None]
        return min(limits, default=None)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools that the chat template describes."""
        return [] if self.tool_choice == "none" else [tool.model_dump() for tool in self.tools or []]


def parse_request(body: bytes) -> ChatRequest:
    """Parse a request. Raises RequestError."""
    try:
        content = json.loads(body)
        request = ChatRequest.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise RequestError(f"{field}: {problem['msg']}.", param=field) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The body is not JSON: {error}.") from None
    if request.model != MODEL:
        message = f"The model `{request.model}` does not exist. Use `{MODEL}`."
        raise RequestError(message, "model_not_found", param="model", status=404)
    for name, values in NEUTRAL.items():
        if content.get(name) not in values:
            message = f"{name}: {json.dumps(content[name])[:80]} is not supported. Remove it."
            raise RequestError(message, "unsupported_parameter", param=name)
    return request


def to_template_messages(messages: Sequence[Message]) -> list[Message]:
    """Convert the messages of a request to messages for chat templates. Raises RequestError.

    Content is text, developer messages have the role system, arguments of calls are objects, and the responses of tools
    have the names of their tools. Fields that templates do not have are left out.
    """
    names: dict[str, str] = {}
    converted = []
    for index, message in enumerate(messages):
        role = message.get("role")
        field = f"messages.{index}"
        result: Message = {"role": "system" if role == "developer" else role}
        result["content"] = _join_text(message.get("content"), f"{field}.content")
        if role == "assistant" and (calls := message.get("tool_calls")):
            try:
                result["tool_calls"] = [_to_template_call(call) for call in calls]
                names |= {call["id"]: call["function"]["name"] for call in calls}
            except (KeyError, TypeError) as error:
                raise RequestError(f"{field}.tool_calls: not calls of functions: {error}.", param=field) from None
        elif role == "tool":
            number = str(message.get("tool_call_id"))
            result |= {"tool_call_id": number, "name": names.get(number, "")}
        elif role not in ("system", "developer", "user", "assistant"):
            raise RequestError(f"{field}.role: {role!r} is not a role.", param=f"{field}.role")
        converted.append(result)
    return converted


def _join_text(content: Any, field: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise RequestError(f"{field}: only text is supported.", param=field)
    return "".join(part["text"] for part in parts)


def _to_template_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        arguments = function["arguments"]
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def build_message(text: str, format: Format, has_tools: bool, new_id: Callable[[], str]) -> Message:
    """Build the message of a turn without end-of-text token. A turn with an invalid call is text, as in vLLM."""
    calls = parse_calls(text, format) if has_tools else []
    valid = [call for call in calls if isinstance(call, ToolCall)]
    message: Message = {"role": "assistant", "content": text}
    if valid and len(valid) == len(calls):
        message["content"] = (text.partition("<tool_call>")[0] if format == "hermes" else "") or None
        message["tool_calls"] = [_build_call(call, new_id()) for call in valid]
    return message


def _build_call(call: ToolCall, number: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": number, "type": "function", "function": function}


def build_completion(
    message: Message, turn: Response, *, number: int, created: int, prompt_tokens: int, tokens: Sequence[str] | None
) -> dict[str, Any]:
    """Build the body of a response. `tokens`: the text of each token in the turn, if logprobs are requested."""
    reason = "tool_calls" if "tool_calls" in message else turn.finish_reason
    choice = {"index": 0, "message": message, "logprobs": _build_logprobs(turn, tokens), "finish_reason": reason}
    completion_tokens = len(turn.token_ids)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def _build_logprobs(turn: Response, tokens: Sequence[str] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    content = [
        {"token": token, "logprob": log_prob, "bytes": list(token.encode()), "top_logprobs": []}
        for token, log_prob in zip(tokens, turn.log_probs, strict=True)
    ]
    return {"content": content}


def build_chunks(completion: Mapping[str, Any], *, include_usage: bool) -> Iterator[str]:
    """Yield the events of a stream. The turn is one chunk: it is complete before it is sent."""
    (choice,) = completion["choices"]
    common = {**completion, "object": "chat.completion.chunk"}
    del common["choices"], common["usage"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    for part in (
        {"index": 0, "delta": delta, "logprobs": choice["logprobs"], "finish_reason": None},
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]},
    ):
        yield _format_event({**common, "choices": [part], **({"usage": None} if include_usage else {})})
    if include_usage:
        yield _format_event({**common, "choices": [], "usage": completion["usage"]})
    yield "data: [DONE]\n\n"


def _format_event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


def build_models() -> dict[str, Any]:
    """Build the list of models."""
    model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rlt"}
    return {"object": "list", "data": [model]}
