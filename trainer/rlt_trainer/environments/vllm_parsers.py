"""vLLM's parsers of reasoning and calls, by their names. This module alone imports these internals of vLLM.

Source: vLLM 0.32.0, vllm/parser/parser_manager.py, and vllm/entrypoints/openai/chat_completion/serving.py, which parses
a complete turn as it is done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from transformers import PreTrainedTokenizerBase

from rlt_trainer.environments.policy_request import cut_text

if TYPE_CHECKING:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import Parser

HARMONY = ("openai", "openai_gptoss")
"""The parsers of gpt-oss, for which vLLM reads the model's type."""
TOOL = {"type": "function", "function": {"name": "tool", "parameters": {"type": "object", "properties": {}}}}
"""Any tool."""
MARKS = (
    "tool_calls_start_token",
    "tool_call_start_token",
    "bot_token",
    "bot_string",
    "tc_start",
    "tools_open",
    "TOOL_CALLS_BEGIN",
    "_TOOL_CALLS_START",
    "_TOOL_CALL_START",
)
"""Attributes of tool parsers with a text that begins calls."""


class VllmParser:
    """Parses the turns of one model."""

    def __init__(self, format: str, reasoning_parser: str | None, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raises ValueError if vLLM has no such parser, or if the parser rejects the tokenizer."""
        from vllm.tokenizers.hf import get_cached_tokenizer

        self._tokenizer: Any = get_cached_tokenizer(cast("Any", tokenizer))  # vLLM's protocol has other signatures
        self._open(format, None, named=f"format: {format}")
        if reasoning_parser is not None:
            self._open(None, reasoning_parser, named=f"reasoningParser: {reasoning_parser}")
            self._open(format, reasoning_parser, named=f"reasoningParser: {reasoning_parser}")

    def _open(self, format: str | None, reasoning_parser: str | None, *, named: str) -> None:
        from vllm.parser import ParserManager

        try:
            found = ParserManager.get_parser(
                tool_parser_name=format,
                reasoning_parser_name=reasoning_parser,
                enable_auto_tools=True,
                is_harmony=format in HARMONY or reasoning_parser in HARMONY,
                tokenizer=self._tokenizer,
            )
            self._class = cast("type[Parser]", found)
            parser = self._class(self._tokenizer)
            self.marks = find_marks(parser)
            """Texts that begin calls. Empty: no text does."""
            self._skips_special_tokens = {
                bool(tools): parser.adjust_request(_build_request(tools)).skip_special_tokens for tools in ((), (TOOL,))
            }
            self.parse(self._tokenizer.encode("a", add_special_tokens=False), (TOOL,), is_ended=False)
        except Exception as error:  # of any parser
            reason = str(error.__cause__ or error).rstrip(".!")
            fix = "Use the parser of the model's family, or a model whose tokenizer has the tokens of this parser"
            raise ValueError(f"rollout.multiTurn.{named} cannot be used: {reason}. {fix}.") from error

    def parse(
        self,
        token_ids: Sequence[int],
        tools: Sequence[Mapping[str, Any]],
        *,
        is_ended: bool,
        stop: Sequence[str] = (),
        prompt: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Parse a turn: read_turn reads the result. Raises what the parser raises.

        `is_ended`: the last token is an end-of-text token. The first of the texts `stop` ends the turn before it.
        `prompt`: the tokens before the turn, for the parser hf.
        """
        request = _build_request(tools)
        parser = self._class(self._tokenizer, cast("Any", request.tools))
        if prompt is not None:
            parser.set_prompt_token_ids(prompt)
        given = list(token_ids[: len(token_ids) - is_ended])
        skips = self._skips_special_tokens[bool(tools)]
        text, _ = cut_text(str(self._tokenizer.decode(given, skip_special_tokens=skips)), stop)
        reasoning, content, calls = parser.parse(
            text, request, enable_auto_tools=True, model_output_token_ids=token_ids
        )
        outside = text.replace(reasoning, "", 1) if reasoning else text
        found = [
            {"id": call.id if call.id and call.id in text else None, "name": call.name, "arguments": call.arguments}
            for call in calls or ()
        ]
        return {
            "reasoning": reasoning or "",
            "content": content or "",
            "calls": found,
            "is_broken": bool(tools) and not found and any(mark in outside for mark in self.marks),
            "reasoning_tokens": parser.count_reasoning_tokens(token_ids) if reasoning else 0,
        }


def _build_request(tools: Sequence[Mapping[str, Any]]) -> ChatCompletionRequest:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    choice = {"tools": list(tools), "tool_choice": "auto"} if tools else {"tool_choice": "none"}
    return ChatCompletionRequest.model_validate({"messages": [], **choice})


def find_marks(parser: Parser) -> list[str]:
    """Return the texts that begin calls."""
    from vllm.parser.engine.adapters import ParserEngineToolAdapter
    from vllm.parser.engine.parser_engine_config import ParserState

    tool_parser = parser.tool_parser
    if not isinstance(tool_parser, ParserEngineToolAdapter):
        marks = (getattr(tool_parser, name, None) for name in MARKS)
        return [mark for mark in marks if isinstance(mark, str)]
    config = tool_parser._parser_engine.parser_engine_config
    names = {
        terminal
        for (state, terminal), transition in config.transitions.items()
        if state == ParserState.CONTENT and transition.next_state.name.startswith("TOOL")
    }
    return [mark for name in sorted(names) if (mark := config.terminal_literal(name))]
