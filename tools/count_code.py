"""Prints the size and the structure of the code: `python tools/count_code.py`.

The counts: lines of Python without tests, the rooms and loose modules of each package, files of more than 300 lines,
functions of more than 60 lines, comparisons of framework types, and the walk of `observed` through `plan`
(docs/architecture.md).

The walk follows a value into each function of the packages that gets it, an attribute of it, or a name for one of
these. It enters each function once, in the order of the code. A return enters a file that was left before. The tables
of steps (STEPS, READY_STEPS, REPORT_UPDATES) are not followed. The second walk follows PARTS.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(file.parent for file in ROOT.glob("[!.]*/*/__init__.py"))
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef
Name = tuple[str, str]
"""A module, and a name in it."""


def main() -> None:
    texts = {path: (ROOT / path).read_text() for path in list_files()}
    lengths = {path: text.count("\n") for path, text in texts.items()}
    print(f"Python without tests: {sum(lengths.values()):,} lines in {len(texts)} files")
    for package in PACKAGES:
        rooms = [path for path in package.iterdir() if list(path.glob("*.py"))]
        modules = [path for path in package.glob("*.py") if not path.stem.startswith("__")]
        print(f"{package.relative_to(ROOT)}: {len(rooms)} rooms, {len(modules)} loose modules")
    print_longest("files", MAX_FILE_LINES, lengths)
    functions = {
        f"{path}::{function.name}": (function.end_lineno or function.lineno) - function.lineno + 1
        for path, text in texts.items()
        for function in ast.walk(ast.parse(text))
        if isinstance(function, Function)
    }
    print_longest("functions", MAX_FUNCTION_LINES, functions)
    comparisons = [each for path, text in texts.items() for each in find_comparisons(path, text)]
    print(f"comparisons of framework types: {len(comparisons)}")
    for each in comparisons:
        print(f"  {each}")
    config_map = Walk(ROOT / "core/rlt_core", ROOT / "api/rlt_api")
    config_map.enter(("rlt_core.children.config_map", "build_config_map"), {"spec"})
    print(f"walk of the spec to the ConfigMap: {config_map.count_files()} files, {config_map.count_returns()} returns")
    for tables in ((), ("PARTS",)):
        walk = Walk(ROOT / "operator/rlt_operator", tables=tables)
        walk.enter(("rlt_operator.reconcile.plan", "plan"), {"observed"})
        print(
            f"walk of {' and '.join(('observed', *tables))}: {walk.count_files()} files, {walk.count_returns()} returns"
        )


def list_files() -> list[str]:
    """The tracked Python files outside of tests folders."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = [path for path in listed.splitlines() if (ROOT / path).is_file() and not path.endswith("conftest.py")]
    return [path for path in paths if "tests" not in Path(path).parts]


def find_comparisons(path: str, text: str) -> list[str]:
    """Find the comparisons of a framework's type with another value: path and line."""
    return [
        f"{path}:{node.lineno}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare | ast.Match)
        for part in ast.walk(node.subject if isinstance(node, ast.Match) else node)
        if isinstance(part, ast.Attribute) and ast.unparse(part).endswith("framework.type")
    ]


def print_longest(title: str, limit: int, lengths: dict[str, int]) -> None:
    longest = {name: length for name, length in lengths.items() if length > limit}
    print(f"{title} of more than {limit} lines: {len(longest)}")
    for name, length in sorted(longest.items(), key=lambda entry: -entry[1]):
        print(f"  {name}: {length}")


class Walk:
    """The modules of the functions that get a followed value, in the order in which they are entered."""

    def __init__(self, *packages: Path, tables: tuple[str, ...] = ()) -> None:
        self._tables = tables
        self._functions: dict[Name, Function] = {}
        self._origins: dict[Name, Name] = {}
        self._members: dict[Name, list[str]] = {}
        self._entered: dict[Name, None] = {}
        for root, path in [(package.parent, path) for package in packages for path in package.rglob("*.py")]:
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, Function):
                    self._functions[module, node.name] = node
                elif isinstance(node, ast.ImportFrom) and node.module:
                    self._origins |= {(module, each.name): (node.module, each.name) for each in node.names}
                elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                    self._members[module, ast.unparse(node.target)] = [
                        ast.unparse(value) for value in node.value.values
                    ]

    def count_files(self) -> int:
        return len({module for module, _ in self._entered})

    def count_returns(self) -> int:
        return len(list(groupby(module for module, _ in self._entered))) - self.count_files()

    def enter(self, function: Name, followed: set[str]) -> None:
        """Walk through the function, whose parameters `followed` are followed."""
        function = self._origins.get(function, function)
        if function in self._entered or function not in self._functions or not followed:
            return
        self._entered[function] = None
        module = function[0]
        for node in iterate(self._functions[function]):
            if isinstance(node, ast.Call):
                self._pass_on((module, ast.unparse(node.func)), node, followed)
            elif isinstance(node, ast.Assign | ast.NamedExpr) and find_root(node.value) in followed:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                followed |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Name) and node.id in self._tables:
                table = self._origins.get((module, node.id), (module, node.id))
                for member in self._members[table]:
                    self.enter((table[0], member), {"observed"})

    def _pass_on(self, callee: Name, call: ast.Call, followed: set[str]) -> None:
        callee = self._origins.get(callee, callee)
        if callee in self._functions:
            names = [each.arg for each in self._functions[callee].args.args]
            values = {
                **dict(zip(names, call.args, strict=False)),
                **{each.arg or "": each.value for each in call.keywords},
            }
            self.enter(callee, {name for name, value in values.items() if find_root(value) in followed})


def iterate(node: ast.AST) -> Iterator[ast.AST]:
    """Parts before the whole: arguments before their call, a value before its assignment."""
    for child in ast.iter_child_nodes(node):
        yield from iterate(child)
    yield node


def find_root(value: ast.expr) -> str | None:
    """The name at the start of an expression such as job.status."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


if __name__ == "__main__":
    main()
