"""OpenAI's Chat Completions API: its requests, responses and errors. Pure.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class ToolDescription(BaseModel):
    """A tool that the policy may call."""

    type: Literal["function"]
    function: ToolFunction


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = False


def _to_list(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) and stop else stop or []


class ChatRequest(BaseModel):
    """The body of a request. temperature, top_p and seed are ignored: they are the job's."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": (None, 1),
        "logit_bias": (None, {}),
        "presence_penalty": (None, 0),
        "frequency_penalty": (None, 0),
        "response_format": (None, {"type": "text"}),
        "top_logprobs": (None, 0),
        "functions": (None, []),
    }

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[ToolDescription] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[Stop, BeforeValidator(_to_list)] = []
    logprobs: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    def to_policy_request(self) -> PolicyRequest:
        """Convert it. Raises RequestError."""
        limits = [limit for limit in (self.max_completion_tokens, self.max_tokens) if limit is not None]
        tools = self.tools if may_call_tools(self.tool_choice) else None
        return PolicyRequest(
            self.messages,
            [describe_tool(tool.function) for tool in tools or []],
            min(limits, default=None),
            tuple(self.stop),
            parallel_calls=self.parallel_tool_calls is not False,
            logprobs=bool(self.logprobs),
        )

    def build_response(self, turn: PolicyTurn) -> dict[str, Any]:
        """Build the body of a response."""
        choice = {
            "index": 0,
            "message": turn.message,
            "logprobs": _build_logprobs(turn),
            "finish_reason": turn.finish_reason,
        }
        return {
            "id": f"chatcmpl-{turn.number}",
            "object": "chat.completion",
            "created": turn.created,
            "model": MODEL,
            "choices": [choice],
            "usage": {
                "prompt_tokens": turn.prompt_tokens,
                "completion_tokens": turn.completion_tokens,
                "total_tokens": turn.prompt_tokens + turn.completion_tokens,
            },
        }

    def build_events(self, turn: PolicyTurn) -> Iterator[str]:
        """Yield the events of a stream. The turn is one chunk: it is complete before it is sent."""
        include_usage = bool(self.stream_options and self.stream_options.include_usage)
        completion = self.build_response(turn)
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
            yield format_event({**common, "choices": [part], **({"usage": None} if include_usage else {})})
        if include_usage:
            yield format_event({**common, "choices": [], "usage": completion["usage"]})
        yield "data: [DONE]\n\n"


def _build_logprobs(turn: PolicyTurn) -> dict[str, Any] | None:
    if turn.logprobs is None:
        return None
    content = [
        {"token": token, "logprob": log_prob, "bytes": list(token.encode()), "top_logprobs": []}
        for token, log_prob in turn.logprobs
    ]
    return {"content": content}


def build_openai_error(error: RequestError) -> dict[str, Any]:
    """Build the body of the response to a request that is rejected, also in the Responses API."""
    kind = "authentication_error" if error.status == 401 else "invalid_request_error"
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}


def build_models() -> dict[str, Any]:
    """Build the list of models."""
    model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rlt"}
    return {"object": "list", "data": [model]}
