"""The regular expressions in the sources of the packages."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "pod/rlt_pod", "api/rlt_api", "core/rlt_core", "operator/rlt_operator", "client/rlt", "cli/rlt_cli", "ui/rlt_ui",
    "trainer/rlt_trainer",
)  # fmt: skip
FUNCTIONS = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")


@dataclass(frozen=True)
class Expression:
    """A regular expression in a source file."""

    place: str
    """`file: source of the argument`."""
    pattern: re.Pattern[str] | re.Pattern[bytes] | None
    """None if the source depends on local variables."""
    method: str
    """match or fullmatch if the file uses it at the start of a text alone; finditer otherwise."""


def find_expressions(package: str) -> Iterator[Expression]:
    """Yield each call of `re` in a package, by file."""
    for path in sorted((ROOT / package).rglob("*.py")):
        yield from _find_in_file(path, (ROOT / package).parent)


def _find_in_file(path: Path, folder: Path) -> Iterator[Expression]:
    source = path.read_text()
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _get_function(node)]
    if not calls:
        return
    names = {
        id(statement.value): ast.unparse(target)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in ([statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets)
    }
    module = importlib.import_module(".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"))
    used_at_once = {
        id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }  # re.compile(…).match
    for call in calls:
        used = {_get_function(call)}
        if used == {"compile"}:
            at_once = used_at_once.get(id(call))
            used = {at_once} if at_once else _find_methods(names.get(id(call)), path, module.__name__)
        method = next((each for each in ("match", "fullmatch") if used == {each}), "finditer")
        place = f"{path.relative_to(ROOT)}: {ast.unparse(call.args[0])}"
        yield Expression(place, _compile(call, vars(module)), method)


def _get_function(call: ast.Call) -> str | None:
    match call.func:
        case ast.Attribute(value=ast.Name(id="re"), attr=name) if name in FUNCTIONS:
            return name
    return None


def _find_methods(name: str | None, path: Path, module: str) -> set[str | None]:
    """The methods that its file, and the files that import its module, call on a pattern. Empty without a name."""
    if name is None:
        return set()
    used = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\.(\w+)")
    texts = {file: file.read_text() for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    return {found for file, text in texts.items() if file == path or module in text for found in used.findall(text)}


def _compile(call: ast.Call, names: dict[str, object]) -> re.Pattern[str] | re.Pattern[bytes] | None:
    flags = [each.value for each in call.keywords if each.arg == "flags"]
    if _get_function(call) in ("compile", "search", "match", "fullmatch", "findall", "finditer"):
        flags += call.args[1 if _get_function(call) == "compile" else 2 :]
    try:
        pattern, *given = (eval(ast.unparse(each), names) for each in (call.args[0], *flags))
    except NameError:
        return None
    return re.compile(pattern, *given) if not isinstance(pattern, re.Pattern) else pattern
