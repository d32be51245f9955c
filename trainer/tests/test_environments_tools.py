"""Tools: calls in a turn, responses in the chat template, and descriptions in the prompt."""

from __future__ import annotations

import pytest
from tool_conversations import (
    TOKENIZER,
    multi_turn,
    talk,
    write_call,
)

from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example
from rlt_trainer.environments.tool_calls import InvalidCall, ToolCall, parse_calls
from rlt_trainer.environments.tool_session import shorten
from rlt_trainer.environments.toolbox import describe_tools


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("The answer is 5.", []),
        ('<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>', [ToolCall("a", {"x": 1})]),
        ('think <tool_call>\n{"name": "a"}\n</tool_call>', [ToolCall("a", {})]),
        ('<tool_call>{"name": "a"}</tool_call> <tool_call>{"name": "b"}', [ToolCall("a", {}), ToolCall("b", {})]),
        ('<tool_call>{"name": "a", "arguments": "{\\"x\\": 1}"}</tool_call>', [ToolCall("a", {"x": 1})]),
    ],
)
def test_hermes_calls_are_parsed(text: str, calls: list[ToolCall]) -> None:
    assert parse_calls(text, "hermes") == calls


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{'name': 'a'}", "the call is not JSON: Expecting property name"),
        ("[1]", 'the call is not an object with "name"'),
        ('{"name": 3}', 'the call is not an object with "name"'),
        ('{"name": "a", "arguments": [1]}', "the arguments of a are not an object"),
        ('{"name": "a", "arguments": "x"}', "the arguments of a are not JSON"),
        ("[" * 100_000, "the call is not JSON"),
    ],
)
def test_a_malformed_call_is_described(body: str, message: str) -> None:
    (found,) = parse_calls(f"<tool_call>{body}</tool_call>", "hermes")
    assert isinstance(found, InvalidCall)
    assert message in found.message


def test_llama_calls_are_a_whole_turn() -> None:
    text = '{"name": "a", "parameters": {"x": 1}}'
    assert parse_calls(f" {text}", "llama3_json") == [ToolCall("a", {"x": 1})]
    assert parse_calls(f"I call {text}", "llama3_json") == []


def test_the_response_of_a_tool_has_the_role_tool_and_is_not_chosen() -> None:
    turn = write_call("calculator", expression="2+3")
    episode, sampler = talk(multi_turn({"name": "calculator"}), turn, "5")
    response = episode.response
    text = str(TOKENIZER.decode(list(response.token_ids)))
    observation = "<|user|><tool_response>5</tool_response><|eos|><|assistant|>"
    assert text == f"{turn}<|eos|>{observation}5<|eos|>"
    assert response.num_turns == 2
    chosen = [token for token, is_chosen in zip(response.token_ids, response.chosen, strict=True) if is_chosen]
    assert str(TOKENIZER.decode(chosen)) == f"{turn}<|eos|>5<|eos|>"
    first, second = sampler.contexts
    assert second == [*first, *response.token_ids[: len(second) - len(first)]]
    assert (episode.reward, episode.failure) == (None, None)


def test_mistakes_of_the_policy_are_observations() -> None:
    given = multi_turn({"name": "calculator"}, maxParallelCalls=3, maxToolResponseLength=100)
    turn = "".join(
        [
            write_call("abacus"),
            "<tool_call>{broken</tool_call>",
            write_call("calculator", term="1"),
            write_call("calculator", expression="1"),
        ]
    )
    episode, _ = talk(given, turn, "5")
    text = str(TOKENIZER.decode(list(episode.response.token_ids)))
    assert episode.failure is None
    assert "error: there is no tool 'abacus'; the tools are calculator" in text
    assert "error: the call is not JSON" in text
    assert 'error: calculator requires the text argument "expression"' in text
    assert "error: the call was skipped: a turn has at most 3 calls" in text


def test_long_responses_keep_their_ends() -> None:
    assert shorten("abcdefgh", 8) == "abcdefgh"
    assert shorten("abcdefgh", 3) == "ab\n... 5 characters are left out ...\nh"


def test_tools_are_described_in_each_prompt() -> None:
    (prompt,) = tokenize(
        [Example("q", "", "", "x")], TOKENIZER, tools=describe_tools(multi_turn({"name": "calculator"}))
    )
    assert '"name": "calculator"' in prompt.text
    assert prompt.text.endswith("<|user|>q<|eos|><|assistant|>")
    assert prompt.messages == [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "does not describe tools"),
        (
            "{{ tools }}{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}",
            "does not render messages with the role tool",
        ),
    ],
)
def test_a_chat_template_without_tools_is_rejected(template: str, problem: str) -> None:
    tools = describe_tools(multi_turn({"name": "calculator"}))
    with pytest.raises(ValueError, match=rf"rollout.multiTurn.tools: the chat template {problem}.* set data.chatT"):
        tokenize([Example("q", "", "", "x")], TOKENIZER, tools=tools, chat_template=template)


def test_two_tools_of_one_name_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"tools\[1\]: the tool calculator exists twice. Remove one"):
        describe_tools(multi_turn({"name": "calculator"}, {"name": "calculator"}))
