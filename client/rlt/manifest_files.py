"""Manifests in YAML files, parsed as kubectl parses them, with the line of every field.

kubectl converts YAML to JSON with sigs.k8s.io/yaml. Its YAML 1.1 differs from PyYAML's: 1e-6 is a number, y and n are
booleans, dates and 12:30 are strings (goyaml.v2/resolve.go).
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

from rlt_api.findings.finding import Finding
from rlt_api.schema.normalize import MAX_DEPTH

STDIN = "-"
MAX_VALUES = 1_000_000
"""Maximum number of values in one document with its aliases expanded. The largest object that the API server accepts
(3 MB) has fewer."""


@dataclass(frozen=True, eq=False)
class Document:
    """One document of a YAML file."""

    file: str
    """The file name that the user gave."""
    line: int
    """The line where it begins."""
    manifest: Mapping[str, Any]
    """Empty if the document is not YAML or not an object."""
    lines: Mapping[str, int]
    """Path of each field -> its line."""
    findings: tuple[Finding, ...] = ()
    """Errors in the YAML, and keys and values that YAML reads differently than written."""

    def line_of(self, path: str) -> int:
        """The line of a field, or of the nearest enclosing field."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, self.line)


def read_documents(file: str) -> list[Document]:
    """Read the documents of a file or of standard input, without empty ones. Raises OSError."""
    return list(parse_documents(file, sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()))


def parse_documents(file: str, content: bytes) -> Iterator[Document]:
    """Parse the content of a file."""
    line = 1
    try:
        _reject_depth(content)
        loader = _Loader(content)
        while loader.check_node():
            node = loader.get_node()
            assert node
            line = node.start_mark.line + 1
            if node.tag != _NULL:
                yield from _split_list(_build_document(file, line, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else f"after line {line}"
        problem = ": ".join(filter(None, (error.context, error.problem)))
        yield _invalid(file, mark.line + 1 if mark else line, place, f"is not YAML: {problem}", "correct the syntax")
    except yaml.reader.ReaderError as error:
        message = "contains a character that YAML does not allow, or is not UTF-8"
        yield _invalid(file, line, f"byte {error.position}", message, "remove the character or write it as an escape")
    except RecursionError:
        message = f"is nested deeper than {MAX_DEPTH} levels, or contains itself"
        yield _invalid(file, line, f"after line {line}", message, "flatten it")


def _split_list(document: Document) -> Iterator[Document]:
    """Yield the items of a List, the output of `kubectl get -o yaml`, or the document itself."""
    kind = document.manifest.get("kind")
    items = document.manifest.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield document
        return
    if document.findings:
        yield Document(document.file, document.line, {}, document.lines, document.findings)
    for index, item in enumerate(items):
        path = f"items[{index}]"
        lines = {key[len(path) + 1 :]: line for key, line in document.lines.items() if key.startswith(f"{path}.")}
        line = document.lines[path]
        if isinstance(item, Mapping):
            yield Document(document.file, line, item, lines)
        else:
            yield _invalid(document.file, line, path, "is not a manifest: not an object", "remove it")


def _reject_depth(content: bytes) -> None:
    """Raise RecursionError before libyaml's composer, which would crash the process."""
    depth = 0
    with contextlib.suppress(yaml.YAMLError):  # parse_documents reports it
        for event in yaml.parse(content, Loader=yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH + 1:  # spec is one level below the manifest
                raise RecursionError


def _build_document(file: str, line: int, node: Node) -> Document:
    if not isinstance(node, MappingNode):
        return _invalid(file, line, f"line {line}", "is not a manifest: not an object", "write apiVersion, kind, …")
    converter = _Converter()
    manifest = converter.convert(node, "")
    if converter.values > MAX_VALUES:
        return _invalid(file, line, f"line {line}", f"expands to more than {MAX_VALUES} values", "use fewer aliases")
    return Document(file, line, manifest, converter.lines, tuple(converter.findings))


def _invalid(file: str, line: int, place: str, message: str, fix: str) -> Document:
    return Document(file, line, {}, {}, (Finding(place, file, message, fix, rule="yaml"),))


@dataclass
class _Converter:
    """Converts YAML nodes to JSON values."""

    lines: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    values: int = 0

    def convert(self, node: Node, path: str) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self.values += 1
        if self.values > MAX_VALUES:
            return None
        if isinstance(node, MappingNode):
            return self._convert_mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.convert(child, f"{path}[{index}]") for index, child in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return _convert_scalar(node)

    def _convert_mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, child in node.value:
            if key.tag == _MERGE:
                for each in child.value if isinstance(child, SequenceNode) else [child]:
                    if isinstance(each, MappingNode):
                        merged = {**self._convert_mapping(each, path), **merged}
                continue
            name = str(key.value) if isinstance(key, ScalarNode) else "?"
            inner = f"{path}.{name}" if path else name
            if key.tag != _STRING:
                self._add_key_finding(key, name, inner)
            if name in own:
                message = f"is set twice; first on line {self.lines[inner]}"
                self.findings.append(Finding(inner, name, message, "keep one of them", rule="yaml"))
            self.lines[inner] = key.start_mark.line + 1
            own[name] = self.convert(child, inner)
        return {**merged, **own}

    def _add_key_finding(self, key: Node, name: str, path: str) -> None:
        meaning = repr(_convert_scalar(key)).lower() if isinstance(key, ScalarNode) else "an object"
        message = f"is {meaning.replace('none', 'null')} in YAML, not a string"
        self.findings.append(Finding(path, name, message, f'write it in quotes: "{name}"', rule="yaml"))


class _Loader(yaml.CSafeLoader):
    """Resolves plain scalars as kubectl does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


_STRING, _BOOLEAN, _NULL, _NUMBER, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "null", "float", "merge")
)
_TRUE = ("y", "yes", "true", "on")
_FALSE = ("n", "no", "false", "off")
_BOOLEANS = "|".join(f"{word}|{word.capitalize()}|{word.upper()}" for word in (*_TRUE, *_FALSE))
_NUMBERS = r"[-+]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?)"
_Loader.add_implicit_resolver(_BOOLEAN, re.compile(f"^({_BOOLEANS})$"), list("yYnNtTfFoO"))
_Loader.add_implicit_resolver(_NULL, re.compile("^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_NUMBER, re.compile(f"^{_NUMBERS}$"), list("-+.0123456789"))
_Loader.add_implicit_resolver(_MERGE, re.compile("^<<$"), ["<"])


def is_text(text: str) -> bool:
    """Whether a plain scalar is a string for kubectl: not a number such as 1e-6, or a boolean such as y."""
    resolvers = _Loader.yaml_implicit_resolvers.get(text[:1], [])
    return not any(pattern.match(text) for _, pattern in resolvers)


def _convert_scalar(node: ScalarNode) -> Any:
    text = str(node.value)
    match node.tag:
        case tag if tag == _BOOLEAN:
            return text.lower() in _TRUE
        case tag if tag == _NULL:
            return None
        case tag if tag == _NUMBER:
            return _convert_number(text.replace("_", ""))
    return text


def _convert_number(text: str) -> int | float | str:
    """A 64-bit integer with Go's prefixes (010 is 8), else a float, else the text."""
    if re.fullmatch(r"[-+]?(0[0-7]*|[1-9][0-9]{0,19}|0[xX].{1,16}|0[oO].{1,22}|0[bB].{1,64})", text):
        sign, digits = (text[0], text[1:]) if text[0] in "-+" else ("", text)
        octal = re.fullmatch("0[0-7]+", digits)
        return int(sign + digits, 8 if octal else 0)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
