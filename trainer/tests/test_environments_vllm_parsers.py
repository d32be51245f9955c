"""vLLM's parsers by their names: each of them loads, turns in their forms are parsed, and hostile turns end."""

from __future__ import annotations

import asyncio
import copy
import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tool_conversations import EOS, TOKENIZER, multi_turn, open_parser
from transformers import PreTrainedTokenizerBase

from rlt_api.rules.parser_names import REASONING_PARSERS, TOOL_PARSERS
from rlt_trainer.environments import turn_parser
from rlt_trainer.environments.session import SampledTurn
from rlt_trainer.environments.tool_calls import InvalidCall, ParsedTurn, ToolCall, read_turn
from rlt_trainer.environments.turn_parser import check_parsers

PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}, "count": {"type": "integer"}}}
LOOK: Any = {"type": "function", "function": {"name": "look", "description": "", "parameters": PARAMETERS}}
TURNS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("parser_turns.toml").read_text())["turn"]
TOOL_TOKENS: Mapping[str, Sequence[str]] = {turn["format"]: turn.get("tokens", ()) for turn in TURNS} | {
    "hy_v4": ("<tool_calls>", "</tool_calls>"),
}
"""Tool parser -> the tokens that its tokenizer must have."""
THINK = ("<think>", "</think>")
REASONING_TOKENS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("deepseek_r1", "ernie45", "holo2", "hy_v3", "hy_v4", "step3"), THINK),
    "k2_horizon": ("<ifm|think>", "</ifm|think>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "mistral": ("[TOOL_CALLS]",),
    "poolside_v1": ("<assistant>", *THINK),
}
"""Reasoning parser -> the tokens that its tokenizer must have."""
MISSING = {
    "cohere_command3": "No module named 'cohere_melody'",
    "cohere_command4": "No module named 'cohere_melody'",
    "hf": "requires `response_template` metadata",
    "olmo3": "'Ġ</'",
    "openai_gptoss": "Harmony requires GptOssToolParser",
}
"""Parsers that read more of a model than these tokens, or need a package or another parser -> what they say."""


@functools.cache
def add_tokens(*tokens: str) -> PreTrainedTokenizerBase:
    """Return the byte tokenizer with these tokens."""
    tokenizer = copy.deepcopy(TOKENIZER)
    tokenizer.add_tokens(list(tokens))
    return tokenizer


@functools.cache
def load(format: str, reasoning_parser: str | None, *tokens: str) -> Any:
    from rlt_trainer.environments.vllm_parsers import VllmParser

    return VllmParser(format, reasoning_parser, add_tokens(*tokens))


def parse(text: str, format: str, reasoning_parser: str | None = None, *, tokens: Sequence[str] = ()) -> ParsedTurn:
    token_ids = add_tokens(*tokens)(text, add_special_tokens=False)["input_ids"]
    parser = load(format, reasoning_parser, *tokens)
    return read_turn(parser.parse([*token_ids, EOS], [LOOK], is_ended=True))


def test_the_names_are_the_ones_of_vllm() -> None:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    assert sorted(ToolParserManager.lazy_parsers) == list(TOOL_PARSERS)
    assert sorted(ReasoningParserManager.lazy_parsers) == list(REASONING_PARSERS)


@pytest.mark.parametrize("name", TOOL_PARSERS)
def test_each_tool_parser_loads_or_names_what_it_needs(name: str) -> None:
    tokens = TOOL_TOKENS.get(name, ())
    is_missing = name in MISSING and name != "olmo3"
    if tokens or is_missing:
        with pytest.raises(ValueError, match=rf"rollout.multiTurn.format: {name} cannot be used: .* Use the parser of"):
            load(name, None)
    if not is_missing:
        turn = parse("Hello.", name, tokens=tokens)
        assert (turn.content.removesuffix("<|eos|>"), turn.calls) == ("Hello.", [])  # openai reads the tokens alone


@pytest.mark.parametrize("name", REASONING_PARSERS)
def test_each_reasoning_parser_loads_or_names_what_it_needs(name: str) -> None:
    tokens = REASONING_TOKENS.get(name, ())
    if tokens or name in MISSING:
        reason = MISSING.get(name, "")
        with pytest.raises(ValueError, match=rf"rollout.multiTurn.reasoningParser: {name} cannot be used: .*{reason}"):
            load("hermes", name)
    if name not in MISSING:
        load("hermes", name, *tokens)


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: str(turn["format"]))
def test_the_call_of_a_turn_is_found(turn: dict[str, Any]) -> None:
    found = parse(turn["text"], turn["format"], tokens=turn.get("tokens", ()))
    assert list(found.calls) == [ToolCall("look", {"word": "hund", "count": 2}, turn.get("id"))]
    assert found.content == ("I look. " if turn["format"] == "hermes" else "")


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", '<tool_call>{"name": "look", </tool_call>'),
        ("hermes", '<tool_call>{"name": "look"}</tool_call>'),
        ("hermes", f"<tool_call>{'[' * 100_000}"),
        ("qwen3_coder", "<tool_call>look"),
        ("functiongemma", "<start_function_call>look"),
    ],
)
def test_a_turn_with_the_mark_of_a_call_and_without_a_call_is_invalid(format: str, text: str) -> None:
    assert list(parse(text, format).calls) == [InvalidCall("the call cannot be parsed")]


def test_reasoning_is_apart_from_the_content() -> None:
    call = TURNS[0]["text"]
    found = parse(f"<think>Hm. {call}</think>Done.", "hermes", "deepseek_r1", tokens=THINK)
    assert (found.reasoning, found.content, list(found.calls)) == (f"Hm. {call}", "Done.", [])
    assert found.reasoning_tokens > 0


def test_a_call_ends_the_reasoning_of_qwen3() -> None:
    found = parse(f"<think>Hm. {TURNS[0]['text']}", "hermes", "qwen3")
    assert (found.reasoning, found.content) == ("Hm. I look. ", "")
    assert list(found.calls) == [ToolCall("look", {"word": "hund", "count": 2})]


def test_a_parser_without_its_tokens_is_rejected_before_the_start() -> None:
    message = (
        r"rollout.multiTurn.format: llama3_json cannot be used: .*<\|python_tag\|>.* Use the parser of the model's"
    )
    with pytest.raises(ValueError, match=message):
        check_parsers(multi_turn({"name": "calculator"}, format="llama3_json"), TOKENIZER)


def test_a_pumped_turn_ends_alone_and_does_not_hold_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    r"""The regular expression of dots (`\s*(.*?)\s*`) takes cubic time for spaces: minutes for 3,000 of them."""
    monkeypatch.setattr(turn_parser, "TIMEOUT_S", 5.0)
    given = multi_turn({"name": "calculator"}, format="dots")
    (text,) = (turn["text"] for turn in TURNS if turn["format"] == "dots")

    async def run() -> None:
        with open_parser(given) as parser:
            await parser.parse(sample("a"), [LOOK])
            pumped = asyncio.create_task(parser.parse(sample("<dots_function_call>" + " " * 20_000), [LOOK]))
            for _ in range(3):
                assert (await parser.parse(sample(text), [LOOK])).calls == [
                    ToolCall("look", {"word": "hund", "count": 2})
                ]
            assert not pumped.done()
            assert list((await pumped).calls) == [InvalidCall("the call cannot be parsed")]
            assert (await parser.parse(sample(text), [LOOK])).valid_calls

    asyncio.run(run())


def sample(text: str) -> SampledTurn:
    return SampledTurn((1,), (*text.encode(), EOS), True, text)


def test_a_turn_without_tools_and_reasoning_is_its_text() -> None:
    async def run() -> ParsedTurn:
        with open_parser(multi_turn({"name": "calculator"})) as parser:
            return await parser.parse(sample("<tool_call>"), [])

    assert asyncio.run(run()) == ParsedTurn("<tool_call>")
