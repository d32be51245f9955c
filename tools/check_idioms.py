"""Finds packed assignments and long functions: `python tools/check_idioms.py [FILE…]`, by default in tracked files.

It prints `file:line: finding: what to do` and fails on any finding. A packed assignment binds several independent
values in one statement, such as `a, b = 1, 2`. Unpacking one value and swapping names are not packed. Functions of
tests can be long.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from check_terms import ROOT, tracked_files
from count_code import MAX_FUNCTION_LINES, Function


def main() -> None:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or tracked_files()
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in paths
        if path.suffix == ".py"
        for line, text in find_problems(path.read_text(), is_test=is_test(path.relative_to(ROOT)))
    ]
    print("".join(f"{line}\n" for line in found), end="")
    if found:
        sys.exit(f"{len(found)} statements or functions that are not idiomatic")


def is_test(path: Path) -> bool:
    return "tests" in path.parts or path.name == "conftest.py"


def find_problems(text: str, *, is_test: bool) -> Iterator[tuple[int, str]]:
    """Yield line and text of each finding."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and any(is_packed(target, node.value) for target in node.targets):
            target = ast.unparse(node.targets[0])
            yield node.lineno, f"{target}: packed assignment: write one assignment a line"
        elif isinstance(node, Function) and not is_test:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                limit = f"move a part of it into a function, so that each has at most {MAX_FUNCTION_LINES}"
                yield node.lineno, f"{node.name}: {lines} lines: {limit}"


def is_packed(target: ast.expr, value: ast.expr) -> bool:
    """True if target and value are lists of the same length, without a starred item, and not a swap."""
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return False
    if any(isinstance(item, ast.Starred) for item in [*target.elts, *value.elts]):
        return False
    return sorted(map(ast.unparse, target.elts)) != sorted(map(ast.unparse, value.elts))


if __name__ == "__main__":
    main()
