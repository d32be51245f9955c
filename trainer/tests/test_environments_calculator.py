"""The calculator evaluates arithmetic and rejects all other input."""

from __future__ import annotations

import time

import pytest

from rlt_trainer.environments.calculator import Calculator, format_result


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+3", "5"),
        (" 2 + 3 * 4 ", "14"),
        ("(2+3)*4", "20"),
        ("7/2", "3.5"),
        ("6/2", "3"),
        ("7//2", "3"),
        ("-7%3", "2"),
        ("2**10", "1024"),
        ("2**-1", "0.5"),
        ("0.1+0.2", "0.3"),
        ("1e3", "1000"),
        ("+-3", "-3"),
        ("123456789*987654321", "121932631112635269"),
    ],
)
def test_expressions_are_evaluated(expression: str, value: str) -> None:
    assert format_result(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1/0", "division by zero"),
        ("0**-1", "0.0 cannot be raised"),
        ("9**9**9", "too large"),
        ("1e300*1e300", "too large"),
        ("1e400", "too large"),
        ("(-8)**0.5", "not a real number"),
        ("", "not an expression"),
        ("2+", "not an expression"),
        ("(" * 150, "not an expression"),
        ("2 3", "not an expression"),
        ("True", "only numbers"),
        ("1j", "only numbers"),
        ("'a'*9", "only numbers"),
        ("__import__('os')", "only numbers"),
        ("[1]*9", "only numbers"),
        ("1 if 1 else 2", "only numbers"),
        ("1\x00", "only numbers"),
        ("e", "only numbers"),
        ("()", "only numbers"),
    ],
)
def test_invalid_expressions_are_errors(expression: str, reason: str) -> None:
    assert format_result(expression).startswith(f"error: {reason}") or reason in format_result(expression)
    assert format_result(expression).startswith("error: ")


@pytest.mark.parametrize(
    "expression", ["9**" * 60 + "9", "-" * 199 + "1", "(" * 90 + "1" + ")" * 90, "9" * 200, "1." * 99]
)
def test_hostile_expressions_end_quickly(expression: str) -> None:
    start = time.monotonic()
    format_result(expression)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("turn", "observation", "is_done"),
    [
        ("<calculator>2+3</calculator>", "<result>5</result>", False),
        (
            "a <calculator>1</calculator> b <calculator>x</calculator>",
            "<result>1</result>\n<result>error: only numbers, + - * / // % ** and parentheses are understood</result>",
            False,
        ),
        ("#### 5", "", True),
        ("<calculator>2+3", "", True),
        ("<calculator></calculator>", "", True),
        (f"<calculator>{'1' * 201}</calculator>", "", True),
    ],
)
def test_each_call_of_a_turn_has_a_result(turn: str, observation: str, is_done: bool) -> None:
    assert Calculator().step(turn) == (observation, None, is_done)
