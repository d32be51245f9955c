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
from rlt_trainer.environments.tool_calls import InvalidCall, ToolCall, read_turn
from rlt_trainer.environments.tool_session import shorten
from rlt_trainer.environments.toolbox import describe_tools

NO_CALL = {"content": "", "reasoning": "", "calls": [], "is_broken": False, "reasoning_tokens": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("[1]", "the arguments of a are not an object"),
        ('"x"', "the arguments of a are not JSON"),
        ("[" * 100_000, "the arguments of a are not JSON"),
    ],
)
def test_malformed_arguments_are_described(arguments: str, message: str) -> None:
    (found,) = read_turn({**NO_CALL, "calls": [{"name": "a", "arguments": arguments, "id": None}]}).calls
    assert isinstance(found, InvalidCall)
    assert message in found.message


def test_arguments_are_an_object_or_its_json() -> None:
    given = [
        {"name": "a", "arguments": arguments, "id": None} for arguments in ('{"x": 1}', '"{\\"x\\": 1}"', "", None)
    ]
    calls = read_turn({**NO_CALL, "calls": given}).calls
    assert calls == [ToolCall("a", {"x": 1}), ToolCall("a", {"x": 1}), ToolCall("a", {}), ToolCall("a", {})]


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
    given = multi_turn({"name": "calculator"}, maxParallelCalls=2, maxToolResponseLength=100)
    turn = "".join(
        [
            write_call("abacus"),
            write_call("calculator", term="1"),
            write_call("calculator", expression="1"),
        ]
    )
    episode, _ = talk(given, turn, "<tool_call>{broken</tool_call>", "5")
    text = str(TOKENIZER.decode(list(episode.response.token_ids)))
    assert (episode.failure, episode.response.num_turns) == (None, 3)
    assert "error: there is no tool 'abacus'; the tools are calculator" in text
    assert 'error: calculator requires the text argument "expression"' in text
    assert "error: the call was skipped: a turn has at most 2 calls" in text
    assert "error: the call cannot be parsed" in text


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
