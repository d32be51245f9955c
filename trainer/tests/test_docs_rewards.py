"""The examples in docs/rewards.md and docs/conversations.md run as documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import get_json_schema

from rlt_api.spec.reward_rules import RULE_OPTIONS
from rlt_trainer.data.prompt import Prompt

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "rewards.md").read_text()
CONVERSATIONS = (DOCS / "conversations.md").read_text().partition("\n## Agents\n")[0]
"""The example of an agent needs openai-agents: agents_program.py is such a program."""


@pytest.fixture(scope="module")
def examples() -> dict[str, Any]:
    """The names that the Python of the pages defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE + CONVERSATIONS, re.DOTALL):
        exec(block, names)
    return names


def test_every_rule_is_documented() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) >= set(RULE_OPTIONS)


def test_the_documented_function_runs(examples: dict[str, Any]) -> None:
    arguments = {"data_source": "", "ground_truth": "7", "extra_info": {}, "bonus": 0.0}
    assert examples["compute_score"](solution_str=" 7\n", **arguments) == {"score": 1.0}


def test_the_documented_environment_runs(examples: dict[str, Any]) -> None:
    game = examples["GuessTheNumber"]()
    assert game.reset(Prompt(0, (1,), "", "7", "7", "")) is None
    assert [game.step(guess) for guess in ("3", "9", "7")] == [
        ("higher", None, False),
        ("lower", None, False),
        ("", 1.0, True),
    ]


def test_the_documented_tool_is_described(examples: dict[str, Any]) -> None:
    schema = get_json_schema(examples["look_up"])["function"]
    assert (schema["name"], schema["description"]) == ("look_up", "Look up a word in the dictionary.")
    assert schema["parameters"]["required"] == ["word"]
