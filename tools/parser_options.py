"""The options of argparse's parsers, read from the syntax tree: calls of add_argument, and dataclasses that fill one.

No module of the program is imported. An option has a kind: int, float, flag (no value), text, or its choices.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from config_classes import Kind, Place, Resolver
from key_sources import Source

FLAGS = ("store_true", "store_false", "store_const", "count")


def list_options(source: Source, path: str, prefix: str = "") -> Iterator[tuple[str, Kind]]:
    """List the options that the calls of add_argument in a module add. `prefix` replaces {prefix} of a name."""
    for node in ast.walk(ast.parse(source.read(path))):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument") | ast.Name(id="reset_arg"), args=args):
                names = [name for each in args if (name := _read_name(each, prefix)).startswith("--")]
                for name in names:
                    yield name, _read_kind(node)
                    if "BooleanOptionalAction" in ast.unparse(node):
                        yield f"--no-{name.removeprefix('--')}", "flag"


def list_field_options(source: Source, path: str, resolver: Resolver, negated: bool) -> Iterator[tuple[str, Kind]]:
    """List the options of the dataclasses that a module passes to Megatron's ArgumentGroupFactory.

    `negated`: with --no- and --disable- for switches, which the default decides.
    """
    tree = ast.parse(source.read(path))
    lists = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List)
        and all(isinstance(each, ast.Constant) for each in node.value.elts)
    }  # fmt: skip
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="ArgumentGroupFactory"), args=[ast.Name(id=name)], keywords=keywords):
                given = next((each.value for each in keywords if each.arg == "exclude"), ast.List([]))
                left_out = lists.get(given.id, []) if isinstance(given, ast.Name) else ast.literal_eval(given)
                for key, kind in resolver.list_keys(Place(source, path, name)):
                    if "." not in key and key not in left_out:
                        yield from _format_field(key, kind, negated)


def list_given_names(source: Source, path: str, keyword: str) -> Iterator[str]:
    """List the options in the lists with this name: arg_names of Megatron's fields, aliases of SGLang's."""
    for node in ast.walk(ast.parse(source.read(path))):
        match node:
            case ast.keyword(arg=name, value=ast.List(elts=names)) if name == keyword:
                yield from (str(each.value) for each in names if isinstance(each, ast.Constant))
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == keyword and isinstance(value, ast.List):
                        yield from (str(each.value) for each in value.elts if isinstance(each, ast.Constant))


def list_annotated_fields(source: Source, path: str, name: str) -> Iterator[tuple[str, Kind]]:
    """List the options of the fields A[type, Arg(…)] of SGLang's ServerArgs."""
    for node in ast.walk(ast.parse(source.read(path))):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                text = ast.unparse(each.annotation) if isinstance(each, ast.AnnAssign) else "no_cli=True"
                if "no_cli=True" not in text and isinstance(each, ast.AnnAssign):
                    named = re.search(r"cli_name='([\w-]+)'", text)
                    yield named[1] if named else f"--{ast.unparse(each.target).replace('_', '-')}", "text"


def _format_field(key: str, kind: Kind, negated: bool) -> Iterator[tuple[str, Kind]]:
    option = key.replace("_", "-")
    is_switch = kind == "bool"
    yield f"--{option}", "flag" if is_switch else "text" if kind == "open" else kind
    if is_switch and negated:
        yield f"--no-{option}", "flag"
        yield f"--disable-{option}", "flag"


def _read_name(node: ast.AST, prefix: str) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(each.value) if isinstance(each, ast.Constant) else prefix for each in parts)
    return ""


def _read_kind(node: ast.Call) -> Kind:
    given = {each.arg: each.value for each in node.keywords}
    match given.get("action"):
        case ast.Constant(value=action) if action in FLAGS:
            return "flag"
        case None:
            pass
        case _:
            return "text"
    if "nargs" in given:
        return "text"
    match given.get("choices"):
        case ast.List(elts=words) | ast.Tuple(elts=words) if all(isinstance(each, ast.Constant) for each in words):
            return [str(each.value) for each in words if isinstance(each, ast.Constant)]
    match given.get("type"):
        case ast.Name(id="int" | "float" as name):
            return name
    return "text"
