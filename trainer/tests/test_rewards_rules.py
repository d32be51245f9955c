"""The rule functions other than gsm8k."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.spec.reward_rules import RULE_OPTIONS
from rlt_trainer.rewards.mathematics import math
from rlt_trainer.rewards.rules import characters, exact, form, length, regex
from rlt_trainer.rewards.sources import RULES, SANDBOXED_RULES, parse_rule_options

TAGS = ["think", "answer"]


def test_every_rule_of_the_api_has_a_function() -> None:
    assert set(RULES) | set(SANDBOXED_RULES) == set(RULE_OPTIONS)


@pytest.mark.parametrize("response", ["095", " 095", "095\n", "\t095 "])
def test_exact_ignores_white_space_around_the_response(response: str) -> None:
    assert exact(response, "095") == 1.0


@pytest.mark.parametrize("response", ["", "95", "0950", "095 095", "0 95", "095.", "the answer is 095"])
def test_exact_requires_the_whole_response(response: str) -> None:
    assert exact(response, "095") == 0.0


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("", 0.0),
        ("7", 1 / 3),
        ("7,", 2 / 3),
        ("7,2", 1.0),
        ("7,25", 0.75),
        ("1,2", 2 / 3),
        ("7.2", 2 / 3),
        ("27,2", 0.0),
    ],
)
def test_characters_scores_each_correct_position(response: str, score: float) -> None:
    assert characters(response, "7,2") == pytest.approx(score)


def test_characters_handles_empty_answers() -> None:
    assert (characters("", ""), characters("1", "")) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        ("\n<think>\na\n</think>\n\n<answer>b</answer> ", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("<think>a</think> so <answer>b</answer>", 0.0),
        ("<think>a</think><answer>b</answer> done", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a<answer>b</answer></think>", 0.0),
        ("<think>a</think><answer>b", 0.0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0.0),
        ("<think><think>a</think><answer>b</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_form_requires_each_section_once_in_order_and_nothing_else(response: str, score: float) -> None:
    assert form(response, "", tags=TAGS) == score


def test_form_matches_a_pattern_against_the_whole_response() -> None:
    assert form("a\nb", "", tags=TAGS, pattern="a.b") == 1.0
    assert form("a\nbc", "", tags=TAGS, pattern="a.b") == 0.0


@pytest.mark.parametrize(
    ("response", "options", "score"),
    [
        ("", {"max": 3}, 1.0),
        ("abc", {"max": 3}, 1.0),
        ("abcd", {"max": 3}, 0.0),
        ("a", {"min": 2, "max": 3}, 0.0),
        ("one two three", {"min": 3, "max": 3, "unit": "words"}, 1.0),
        ("🎉🎉🎉", {"max": 3}, 1.0),
    ],
)
def test_length_is_an_inclusive_range(response: str, options: dict[str, Any], score: float) -> None:
    assert length(response, "", **options) == score


@pytest.mark.parametrize(
    ("pattern", "response", "score"),
    [
        ("[0-9]+", "so 18.", 1.0),
        ("[0-9]+", "none", 0.0),
        (r"is (?P<answer>\w+)", "it is 17, it is 18", 1.0),
        (r"is (?P<answer>\w+)", "it is 18, it is 17", 0.0),
        (r"is (?P<answer>\w+)?", "it is ", 0.0),
        ("(?s)a.b", "a\nb", 1.0),
    ],
)
def test_regex_finds_a_pattern_and_compares_its_answer_group(pattern: str, response: str, score: float) -> None:
    assert regex(response, "18", pattern=pattern) == score


@pytest.mark.parametrize(
    ("response", "ground_truth", "score"),
    [
        (r"So \boxed{\frac{1}{2}}.", r"\frac{1}{2}", 1.0),
        (r"\boxed{0.5}", r"\frac12", 1.0),
        (r"\boxed{\dfrac{3}{6}}", r"\frac{1}{2}", 1.0),
        ("the answer is 0.5", r"\frac{1}{2}", 1.0),
        (r"\boxed{x^2+2x+1}", "(x+1)^2", 1.0),
        (r"\boxed{1,234}", "1234", 1.0),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", 1.0),
        (r"\boxed{(1,2)}", "(1,2)", 1.0),
        (r"\boxed{[0,1)}", "[0,1)", 1.0),
        (r"\boxed{[0,1]}", "[0,1)", 0.0),
        (r"\boxed{(2,1)}", "(1,2)", 0.0),
        (r"\boxed{2}", "3", 0.0),
        ("I do not know", "3", 0.0),
        ("", "3", 0.0),
        ("the answer is 1072", "48+1024 clips.\n#### 1,072", 1.0),
        (r"it is $\frac{1}{2}$", r"Half of it is $\boxed{0.5}$.", 1.0),
        (r"it is $\frac{1}{3}$", r"Half of it is $\boxed{0.5}$.", 0.0),
    ],
)
def test_math_compares_values_instead_of_text(response: str, ground_truth: str, score: float) -> None:
    assert math(response, ground_truth) == score


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        ("gsm8k", {"method": "loose"}, r"options\.method of rule gsm8k: Input should be 'strict' or 'flexible'"),
        ("exact", {"strict": True}, r"options\.strict of rule exact: Extra inputs are not permitted"),
        ("length", {}, r"options\.max of rule length: Field required"),
        ("length", {"min": 3, "max": 2}, "min 3 is above max 2"),
        ("regex", {"pattern": "("}, "is not a regular expression: missing"),
        ("format", {"tags": ["a"], "pattern": "a"}, "give tags or pattern, not both"),
        ("format", {"tags": ["a>"]}, "String should match pattern"),
    ],
)
def test_options_that_a_rule_does_not_have_are_rejected(rule: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_rule_options(rule, options)


def test_options_reach_the_rule_with_their_defaults() -> None:
    assert parse_rule_options("format", {}) == {"tags": TAGS, "pattern": None}
    assert parse_rule_options("length", {"max": 3}) == {"min": 0, "max": 3, "unit": "characters"}
