"""The keys of config classes: dataclasses, pydantic's models and TypedDicts, read from the syntax tree.

No module of the program is imported. A key has a kind: int, float, bool, text (any value), open (it has keys below it
that the classes do not name), or the list of its choices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from key_sources import Source

Kind = str | list[str]
PLAIN: Mapping[str, str] = {"int": "int", "float": "float", "bool": "bool", "str": "text", "Path": "text"}
WRAPPERS = ("Optional", "Union", "Annotated", "NotRequired", "Required", "SerializeAsAny")
"""Types around another type."""


@dataclass(frozen=True)
class Place:
    """A name in a module."""

    source: Source
    path: str
    name: str


@dataclass(frozen=True)
class Resolver:
    """Where the modules of imports are."""

    roots: tuple[str, ...]
    """Folders of the source with the top packages, such as "src/"."""
    others: Mapping[str, Place]
    """Imported name, such as transformers.TrainingArguments -> its place in another source."""

    def find(self, place: Place) -> tuple[Place, ast.AST] | None:
        """Find the class or the alias of a type, through imports. None if it is in a module that no source has."""
        node = find_name(place)
        if not isinstance(node, ast.ImportFrom):
            return (place, node) if node else None
        name = next(each.name for each in node.names if (each.asname or each.name) == place.name)
        if other := self.others.get(f"{node.module}.{name}"):
            return self.find(other)
        path = (node.module or "").replace(".", "/")
        if node.level:
            folder = place.path.split("/")[: -node.level]
            path = "/".join([*folder, *([path] if path else [])])
        roots = ("",) if node.level else self.roots
        for file in (f"{root}{path}{end}" for root in roots for end in (".py", "/__init__.py")):
            if place.source.has(file):
                return self.find(Place(place.source, file, name))
        return None

    def list_keys(self, place: Place, prefix: str = "") -> Iterator[tuple[str, Kind]]:
        """List the keys of a class and of the classes below it."""
        found = self.find(place)
        if found and isinstance(found[1], ast.ClassDef):
            yield from self._list_fields(*found, prefix)

    def _list_fields(self, place: Place, node: ast.AST, prefix: str) -> Iterator[tuple[str, Kind]]:
        assert isinstance(node, ast.ClassDef)
        for base in node.bases:
            above = self.find(Place(place.source, place.path, ast.unparse(base)))
            if above and isinstance(above[1], ast.ClassDef):
                yield from self._list_fields(*above, prefix)
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                if each.target.id.startswith("_") or "ClassVar" in ast.unparse(each.annotation):
                    continue
                for name in (each.target.id, *list_aliases(each.value)):
                    yield from self._list_type(place, each.annotation, f"{prefix}{name}")
            elif isinstance(each, ast.Assign) and "extra='allow'" in ast.unparse(each.value):
                yield prefix.rstrip("."), "open"

    def _list_type(self, place: Place, annotation: ast.AST, key: str) -> Iterator[tuple[str, Kind]]:
        kinds = list(self._list_kinds(place, annotation, key))
        yield from (each for each in kinds if each[0] != key)
        own: list[Kind] = [kind for name, kind in kinds if name == key]
        words = [word for kind in own if isinstance(kind, list) for word in kind]
        plain = {kind for kind in own if isinstance(kind, str)}
        if "open" in plain or len(plain) > 1 or (plain and words):
            yield key, "open" if "open" in plain else "text"
        elif own:
            yield key, words or next(iter(plain))

    def _list_kinds(self, place: Place, annotation: ast.AST, key: str) -> Iterator[tuple[str, Kind]]:
        """The kinds of a type's parts, and the keys below."""
        match annotation:
            case ast.Constant(value=None):
                return
            case ast.Constant(value=str() as text):
                yield from self._list_kinds(place, ast.parse(text, mode="eval").body, key)
            case ast.BinOp(left=left, right=right):
                yield from self._list_kinds(place, left, key)
                yield from self._list_kinds(place, right, key)
            case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in WRAPPERS:
                parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                for part in parts[:1] if name == "Annotated" else parts:
                    yield from self._list_kinds(place, part, key)
            case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
                values = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                words = [each.value for each in values if isinstance(each, ast.Constant)]
                yield key, "bool" if all(isinstance(each, bool) for each in words) else [str(each) for each in words]
            case ast.Name(id=name) if name in PLAIN:
                yield key, PLAIN[name]
            case ast.Name(id=name):
                yield from self._list_named(Place(place.source, place.path, name), key)
            case _:
                yield key, "open"

    def _list_named(self, place: Place, key: str) -> Iterator[tuple[str, Kind]]:
        found = self.find(place)
        match found:
            case (_, ast.ClassDef(bases=bases)) if any("Enum" in ast.unparse(each) for each in bases):
                yield key, "text"
            case (where, ast.ClassDef() as node):
                yield from self._list_fields(where, node, f"{key}.")
            case (where, ast.Assign(value=value) | ast.AnnAssign(value=ast.AST() as value)):
                yield from self._list_kinds(where, value, key)
            case _:
                yield key, "open"


def merge(pairs: Iterable[tuple[str, Kind]]) -> dict[str, Kind]:
    """Merge the kinds of each key: the choices of all, or the first kind that takes any of the values."""
    merged: dict[str, Kind] = {}
    for key, kind in pairs:
        before = merged.get(key, kind)
        if isinstance(before, list) and isinstance(kind, list):
            merged[key] = list(dict.fromkeys([*before, *kind]))
        elif before == kind or before == "open":
            merged[key] = before
        else:
            merged[key] = "open" if kind == "open" else "text"
    return merged


def list_aliases(value: ast.AST | None) -> Iterator[str]:
    """List the other names of a field: of pydantic, and of transformers."""
    for node in ast.walk(value) if value else ():
        match node:
            case ast.Call(func=ast.Name(id="AliasChoices"), args=names):
                yield from (str(each.value) for each in names if isinstance(each, ast.Constant))
            case ast.Dict(keys=keys, values=values):
                for name, given in zip(keys, values, strict=True):
                    if isinstance(name, ast.Constant) and name.value == "aliases" and isinstance(given, ast.List):
                        yield from (ast.literal_eval(each).lstrip("-") for each in given.elts)


def find_name(place: Place) -> ast.AST | None:
    """Find the statement of a module that defines or imports a name."""
    return _list_names(place.source, place.path).get(place.name)


@cache
def _list_names(source: Source, path: str) -> dict[str, ast.AST]:
    names: dict[str, ast.AST] = {}
    for node in ast.walk(ast.parse(source.read(path))):
        match node:
            case ast.ClassDef(name=name):
                names.setdefault(name, node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.setdefault(name, node)
            case ast.ImportFrom(names=imported):
                for each in imported:
                    names.setdefault(each.asname or each.name, node)
    return names
