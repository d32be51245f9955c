"""A calculator: <calculator>2+3</calculator> in a turn is answered by <result>5</result>."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.environment import Step

MAX_CHARACTERS = 200
"""Of one expression."""
MAX_DIGITS = 100
"""Of any number on the way, so that powers of powers end."""

_CALL = re.compile(rf"<calculator>([^<]{{1,{MAX_CHARACTERS}}})</calculator>")
_NUMBERS = re.compile(r"[0-9.eE+\-*/%() \t\n]*")
_UNDERSTOOD = "only numbers, + - * / // % ** and parentheses are understood"

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Calculator:
    """Answers every call in a turn, one result a line. A turn without a call is the last one. It gives no reward."""

    def reset(self, prompt: Prompt) -> str | None:
        return None

    def step(self, response: str) -> Step:
        results = [f"<result>{answer(expression)}</result>" for expression in _CALL.findall(response)]
        return "\n".join(results), None, not results


def answer(expression: str) -> str:
    """The expression's value as text, or "error: ..." with the reason."""
    try:
        value = evaluate(expression)
    except (ValueError, ArithmeticError) as error:
        return f"error: {error}"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def evaluate(expression: str) -> float:
    """The value of numbers, + - * / // % ** and parentheses. Nothing else is Python here.

    Raises ValueError for anything else and ArithmeticError where arithmetic does.
    """
    if not _NUMBERS.fullmatch(expression):
        raise ValueError(_UNDERSTOOD)
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:  # the parser's own limits
        raise ValueError("not an expression") from error


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
    raise ValueError(_UNDERSTOOD)


def _power(base: float, exponent: float) -> float:
    if base != 0 and exponent * math.log10(abs(base)) > MAX_DIGITS:
        raise ValueError("too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("not a real number")
    return _bounded(result)


def _bounded(number: float) -> float:
    if not abs(number) < 10**MAX_DIGITS:  # not a number is no less, either
        raise ValueError("too large")
    return number
