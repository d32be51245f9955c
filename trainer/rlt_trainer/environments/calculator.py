"""The environment calculator: it replies to <calculator>2+3</calculator> in a turn with <result>5</result>."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

from rlt_trainer.data.prompt import Prompt

MAX_CHARACTERS = 200
"""Maximum number of characters in one expression."""
MAX_DIGITS = 100
"""Maximum number of digits in a result or an intermediate result, which bounds the time for powers of powers."""

_CALL = re.compile(rf"<calculator>([^<]{{1,{MAX_CHARACTERS}}})</calculator>")
_NUMBERS = re.compile(r"[0-9.eE+\-*/%() \t\n]*")
_SYNTAX = "only numbers, + - * / // % ** and parentheses are understood"

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Calculator:
    """Returns the result of each call in a turn, one per line. A turn without a call is the last. There is no
    reward."""

    def reset(self, prompt: Prompt) -> str | None:
        return None

    def step(self, response: str) -> tuple[str, float | None, bool]:
        results = [f"<result>{format_result(expression)}</result>" for expression in _CALL.findall(response)]
        return "\n".join(results), None, not results


def format_result(expression: str) -> str:
    """Return the value of an expression as text, or "error: ..." with the reason."""
    try:
        value = evaluate(expression)
    except (ValueError, ArithmeticError) as error:
        return f"error: {error}"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def evaluate(expression: str) -> float:
    """Evaluate an expression of numbers, + - * / // % ** and parentheses. Other Python syntax is not supported.

    Raises ValueError for other syntax and for values that are too large, and ArithmeticError as Python's arithmetic.
    """
    if not _NUMBERS.fullmatch(expression):
        raise ValueError(_SYNTAX)
    try:
        return _evaluate_node(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:  # RecursionError and MemoryError: limits of the parser
        raise ValueError("not an expression") from error


def _evaluate_node(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _limit(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_node(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate_node(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _raise_to_power(_evaluate_node(left), _evaluate_node(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _limit(_OPERATORS[type(op)](_evaluate_node(left), _evaluate_node(right)))
    raise ValueError(_SYNTAX)


def _raise_to_power(base: float, exponent: float) -> float:
    if base != 0 and exponent * math.log10(abs(base)) > MAX_DIGITS:
        raise ValueError("too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("not a real number")
    return _limit(result)


def _limit(number: float) -> float:
    if not abs(number) < 10**MAX_DIGITS:  # also true for NaN
        raise ValueError("too large")
    return number
