"""Packed assignments and long functions are found, and similar correct code is not."""

from __future__ import annotations

import pytest

from check_idioms import find_problems
from count_code import MAX_FUNCTION_LINES


@pytest.mark.parametrize(
    "statement",
    [
        "a, b = 1, 2",
        "[a, b] = [1, f()]",
        "self.a, self.b = a, b",
        "a, b = b, a + b",
        "(a, c), b = f(), 2",
        "a, b = pair = 1, 2",
    ],
)
def test_packed_assignments_are_found(statement: str) -> None:
    problems = list(find_problems(f"\nif True:\n    {statement}\n", is_test=True))
    assert [line for line, _ in problems] == [3]
    assert problems[0][1].endswith(": packed assignment: write one assignment a line")


@pytest.mark.parametrize(
    "statement",
    [
        "a, b = f()",
        "a, *b = [*c, 1]",
        "numbers[0], numbers[1] = numbers[1], numbers[0]",
        "pair = 1, 2",
        "a = b = 1",
        "for a, b in ((1, 2), (3, 4)): pass",
    ],
)
def test_unpacking_and_swaps_are_not_packed(statement: str) -> None:
    assert list(find_problems(statement, is_test=False)) == []


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_function_is_long_from_its_first_line_to_its_last(keyword: str) -> None:
    allowed = f"@decorator\n{keyword} work():\n" + "    pass\n" * (MAX_FUNCTION_LINES - 1)
    too_long = allowed + "    pass\n"
    assert list(find_problems(allowed, is_test=False)) == []
    assert list(find_problems(too_long, is_test=True)) == []
    ((line, text),) = find_problems(too_long, is_test=False)
    assert line == 2
    assert text.startswith(f"work: {MAX_FUNCTION_LINES + 1} lines: ")
