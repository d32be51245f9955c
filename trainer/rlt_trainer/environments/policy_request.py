"""A request for one turn of the policy, and the turn: what the APIs of the agent server have in common. Pure.

Messages and tools are in the schema of Chat Completions. Source: https://platform.openai.com/docs/api-reference/chat

The APIs have their own models of requests, which reject what the policy cannot do. vLLM's models accept more, and the
trainer also runs without vLLM. The tests compare both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from rlt_trainer.batches.response import FinishReason
from rlt_trainer.environments.tool_calls import ParsedTurn, ToolCall

MODEL = "policy"
"""The name of the only model."""

Message = dict[str, Any]
Stop = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=128)]],
    Field(max_length=16),
]
"""Texts that end a turn, with the bounds of rollout.stop."""


class RequestError(Exception):
    """A request that is rejected. The client must not retry it."""

    def __init__(self, message: str, code: str | None = None, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        """OpenAI's code of the error."""
        self.param = param
        """The field of the request."""
        self.status = status


@dataclass(frozen=True)
class PolicyRequest:
    """A request for one turn of the policy."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    """The tools that the chat template describes."""
    max_tokens: int | None = None
    """None: as many as the job allows."""
    stop: tuple[str, ...] = ()
    """Texts that end the turn. The message does not have them, the tokens do."""
    parallel_calls: bool = True
    """Whether the message has all calls of the turn, or the first one, as in vLLM."""
    logprobs: bool = False


@dataclass(frozen=True)
class PolicyTurn:
    """A turn of the policy, for the response to a request."""

    number: int
    """The number of the request in its episode."""
    created: int
    """Unix time, in seconds."""
    message: Message
    finish_reason: FinishReason | Literal["tool_calls"]
    stop_text: str | None
    """The text of `PolicyRequest.stop` that ended the turn."""
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    logprobs: Sequence[tuple[str, float]] | None
    """The text and the log-probability of each token, if the request asks for them."""


class ApiBody(Protocol):
    """The body of a request in one API."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]]
    """Parameters that are not supported -> their values without an effect."""
    model: str

    @classmethod
    def model_validate(cls, obj: Any) -> Self: ...

    def to_policy_request(self) -> PolicyRequest:
        """Convert it. Raises RequestError."""
        ...


class ApiRequest(ApiBody, Protocol):
    """The body of a request for a turn."""

    stream: bool | None

    def build_response(self, turn: PolicyTurn) -> dict[str, Any]:
        """Build the body of the response."""
        ...

    def build_events(self, turn: PolicyTurn) -> Iterator[str]:
        """Yield the events of a stream. A turn is complete before it is sent: each text is one event."""
        ...


AnyBody = TypeVar("AnyBody", bound=ApiBody)


def parse_request(body: bytes, api: type[AnyBody]) -> AnyBody:
    """Parse the body of a request. Raises RequestError."""
    try:
        content = json.loads(body)
        request = api.model_validate(content)
    except ValidationError as error:
        field, problem = describe_problem(error)
        raise RequestError(f"{field}: {problem}", param=field) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The body is not JSON: {error}.") from None
    if request.model != MODEL:
        message = f"The model `{request.model}` does not exist. Use `{MODEL}`."
        raise RequestError(message, "model_not_found", param="model", status=404)
    for name, values in api.NEUTRAL.items():
        if content.get(name) not in values:
            message = f"{name}: {json.dumps(content[name])[:80]} is not supported. Remove it."
            raise RequestError(message, "unsupported_parameter", param=name)
    return request


def describe_problem(error: ValidationError) -> tuple[str, str]:
    """Return the field of the first problem, and the problem with its fix."""
    problem = error.errors()[0]
    field = ".".join(map(str, problem["loc"]))
    if problem["type"] == "union_tag_invalid":
        given = problem["ctx"]
        name = given["discriminator"].strip("'")
        return field, f"{given['tag'][:80]!r} is not a supported {name}. Use {given['expected_tags']}."
    return field, f"{problem['msg']}."


def may_call_tools(choice: Any) -> bool:
    """Return whether a `tool_choice` allows calls. Raises RequestError if it requires one."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in (None, "auto", "none"):
        message = (
            f"tool_choice: {json.dumps(choice)[:80]} is not supported: a call cannot be guaranteed, because each token "
            "is sampled from the policy as it is. Use auto or none."
        )
        raise RequestError(message, "unsupported_parameter", param="tool_choice")
    return kind != "none"


class ToolFunction(BaseModel):
    """The description of a tool."""

    name: str
    description: str | None = ""
    parameters: dict[str, Any] | None = None


def describe_tool(function: ToolFunction) -> dict[str, Any]:
    """Describe a tool for the chat template."""
    described = {
        "name": function.name,
        "description": function.description or "",
        "parameters": function.parameters or {},
    }
    return {"type": "function", "function": described}


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


def cut_text(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """Return the text before the first of the texts `stop`, and which one it is."""
    found = [(text.index(each), -len(each), each) for each in stop if each in text]
    if not found:
        return text, None
    begin, _, first = min(found)
    return text[:begin], first


def build_message(turn: ParsedTurn, text: str, request: PolicyRequest, new_id: Callable[[], str]) -> Message:
    """Build the message of a turn with the whole `text`. A turn with an invalid call is text, as in vLLM.

    A blank text before calls is left out: Anthropic's API has no blank texts, so that its agents do not return it.
    `reasoning_content` is the reasoning: https://api-docs.deepseek.com/guides/reasoning_model.
    """
    calls = turn.valid_calls
    content = turn.content if calls or turn.reasoning else text
    message: Message = {"role": "assistant", "content": content if content.strip() or not calls else None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if calls:
        given = calls if request.parallel_calls else calls[:1]
        message["tool_calls"] = [_build_call(call, call.id or new_id()) for call in given]
    return message


def _build_call(call: ToolCall, number: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": number, "type": "function", "function": function}


def format_event(content: Mapping[str, Any], name: str | None = None) -> str:
    """Format a server-sent event."""
    event = f"event: {name}\n" if name else ""
    return f"{event}data: {json.dumps(content)}\n\n"
