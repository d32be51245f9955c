"""Manifests in YAML files, read as kubectl reads them, with the line of every field.

kubectl turns YAML into JSON by sigs.k8s.io/yaml, whose YAML is 1.1 but not PyYAML's: 1e-6 is a number, y and n are
booleans, dates and 12:30 are text (goyaml.v2/resolve.go).
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rlt_api.finding import Finding
from rlt_api.normalize import MAX_DEPTH

STDIN = "-"
MAX_VALUES = 1_000_000
"""Of one document, aliases written out. The largest object that the API server takes (3 MB) has fewer."""


@dataclass(frozen=True, eq=False)
class Document:
    """One document of a YAML file."""

    file: str
    """As the user gave it."""
    line: int
    """Where it begins."""
    manifest: Mapping[str, Any]
    """Empty if it is no YAML, or no object."""
    lines: Mapping[str, int]
    """Path of each field -> its line."""
    findings: tuple[Finding, ...] = ()
    """What YAML makes of it that its author cannot have meant. The paths end where it happens."""

    def line_of(self, path: str) -> int:
        """The line of a field, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, self.line)


def read_documents(file: str) -> list[Document]:
    """The documents of a file, or of standard input; empty ones are left out. Raises OSError."""
    return list(documents(file, sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()))


def documents(file: str, stream: bytes) -> Iterator[Document]:
    """The documents of a file that holds `stream`."""
    line = 1
    try:
        _refuse_depth(stream)
        loader = _Loader(stream)
        while loader.check_node():
            node = loader.get_node()
            assert node
            line = node.start_mark.line + 1
            if node.tag != _NULL:
                yield _document(file, line, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else f"after line {line}"
        said = ": ".join(filter(None, (error.context, error.problem)))
        yield _broken(file, mark.line + 1 if mark else line, place, f"is not YAML: {said}", "mend the syntax")
    except yaml.reader.ReaderError as error:
        what = "holds a character that YAML does not allow, or is not UTF-8"
        yield _broken(file, line, f"byte {error.position}", what, "take it out, or write it as an escape")
    except RecursionError:
        what = f"is nested deeper than {MAX_DEPTH} levels, or holds itself"
        yield _broken(file, line, f"after line {line}", what, "flatten it")


def _refuse_depth(stream: bytes) -> None:
    """Raises RecursionError. libyaml's composer would end the process."""
    depth = 0
    with contextlib.suppress(yaml.YAMLError):  # it is told where the documents are read
        for event in yaml.parse(stream, Loader=yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH + 1:  # spec is within the manifest
                raise RecursionError


def _document(file: str, line: int, node: Node) -> Document:
    if not isinstance(node, MappingNode):
        return _broken(file, line, f"line {line}", "is not a manifest: not an object", "write apiVersion, kind, …")
    walk = _Walk()
    manifest = walk.value(node, "")
    if walk.values > MAX_VALUES:
        return _broken(file, line, f"line {line}", f"grows beyond {MAX_VALUES} values by its aliases", "use fewer")
    return Document(file, line, manifest, walk.lines, tuple(walk.findings))


def _broken(file: str, line: int, place: str, message: str, fix: str) -> Document:
    return Document(file, line, {}, {}, (Finding(place, file, message, fix, "yaml"),))


@dataclass
class _Walk:
    """From YAML's nodes to JSON."""

    lines: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    values: int = 0

    def value(self, node: Node, path: str) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self.values += 1
        if self.values > MAX_VALUES:
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(child, f"{path}[{index}]") for index, child in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return _scalar(node)

    def _mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, child in node.value:
            if key.tag == _MERGE:
                for each in child.value if isinstance(child, SequenceNode) else [child]:
                    if isinstance(each, MappingNode):
                        merged = {**self._mapping(each, path), **merged}
                continue
            name = str(key.value) if isinstance(key, ScalarNode) else "?"
            inner = f"{path}.{name}" if path else name
            if key.tag != _STRING:
                self._not_a_name(key, name, inner)
            if name in own:
                said = f"is given twice; first in line {self.lines[inner]}"
                self.findings.append(Finding(inner, name, said, "keep one of them", "yaml"))
            self.lines[inner] = key.start_mark.line + 1
            own[name] = self.value(child, inner)
        return {**merged, **own}

    def _not_a_name(self, key: Node, name: str, path: str) -> None:
        meaning = repr(_scalar(key)).lower() if isinstance(key, ScalarNode) else "an object"
        message = f"is read as {meaning.replace('none', 'null')} by YAML, not as a name"
        self.findings.append(Finding(path, name, message, f'write "{name}" in quotes', "yaml"))


class _Loader(yaml.CSafeLoader):
    """Knows which plain scalars are more than text to kubectl."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


_STRING, _BOOLEAN, _NULL, _NUMBER, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "null", "float", "merge")
)
_TRUE = ("y", "yes", "true", "on")
_FALSE = ("n", "no", "false", "off")
_WORDS = "|".join(f"{word}|{word.capitalize()}|{word.upper()}" for word in (*_TRUE, *_FALSE))
_NUMBERS = r"[-+]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?)"
_Loader.add_implicit_resolver(_BOOLEAN, re.compile(f"^({_WORDS})$"), list("yYnNtTfFoO"))
_Loader.add_implicit_resolver(_NULL, re.compile("^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_NUMBER, re.compile(f"^{_NUMBERS}$"), list("-+.0123456789"))
_Loader.add_implicit_resolver(_MERGE, re.compile("^<<$"), ["<"])


def _scalar(node: ScalarNode) -> Any:
    text = str(node.value)
    match node.tag:
        case tag if tag == _BOOLEAN:
            return text.lower() in _TRUE
        case tag if tag == _NULL:
            return None
        case tag if tag == _NUMBER:
            return _number(text.replace("_", ""))
    return text


def _number(text: str) -> int | float | str:
    """An integer of 64 bits with Go's prefixes (010 is 8), else a float, else text."""
    if re.fullmatch(r"[-+]?(0[0-7]*|[1-9][0-9]{0,19}|0[xX].{1,16}|0[oO].{1,22}|0[bB].{1,64})", text):
        sign, digits = (text[0], text[1:]) if text[0] in "-+" else ("", text)
        octal = re.fullmatch("0[0-7]+", digits)
        return int(sign + digits, 8 if octal else 0)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
