"""Manifests to start from: `templates/*.yaml`, and the same with every field of the API."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import yaml

from rlt_cli.field_guide import Field, blocks

WIDTH = 120


def template(name: str, *, object_name: str, runtime: str | None = None) -> str:
    """The template's text. With a runtime, what a runtime gives is left to it."""
    text = resources.files("rlt_cli").joinpath("templates", f"{name}.yaml").read_text(encoding="utf-8")
    text = text.replace("name: NAME", f"name: {_flow(object_name)}", 1)
    if runtime is None:
        return text
    text = re.sub(r"^  storage:\n(    .*\n)+", "", text, flags=re.M)
    replicas = re.search(r"replicas: \d+", text)
    assert replicas
    workers = f"  cluster:\n    workers:\n      - {replicas.group()}\n"
    text = re.sub(r"^  cluster:\n(    .*\n)+", workers, text, flags=re.M)
    return text.replace("spec:\n", f"spec:\n  runtimeRef: {{name: {_flow(runtime)}}}\n", 1)


def with_every_field(text: str) -> str:
    """A template with every field: those that it does not give are commented out, with their defaults.

    `# ` begins a description; a # without a space begins a field: taking it away gives the field.
    """
    manifest = yaml.safe_load(text)
    head = text[: text.index("spec:\n")] + "spec:\n"
    lines = [line for field in blocks(manifest["kind"]).fields for line in _lines(field, manifest["spec"], "  ")]
    return head + "\n".join(lines) + "\n"


def _lines(field: Field, around: Mapping[str, Any] | None, indent: str) -> Iterator[str]:
    """A field and what is in it. `around` is what is given of the block that it lies in."""
    value = (around or {}).get(field.name)
    mark = "#" if value is None else ""
    for line in textwrap.wrap(_text(field), WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"
    if not field.fields:
        said = _flow(value) if value is not None else field.default or ""
        yield f"{indent}{mark}{field.name}: {said}".rstrip()
    elif "items" not in field.schema:
        yield f"{indent}{mark}{field.name}:"
        for child in field.fields:
            yield from _lines(child, value, f"{indent}  ")
    else:
        yield f"{indent}{mark}{field.name}:"
        for item in value or [{}]:
            fields = sorted(
                field.fields, key=lambda child: child.name not in item
            )  # what is given first: it has the dash
            yield from _item([line for child in fields for line in _lines(child, item, f"{indent}    ")])


def _item(lines: list[str]) -> Iterator[str]:
    """The lines of a list's item: its first field gets the dash."""
    first = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("# "))
    yield from lines[:first]
    indent, mark, field = re.fullmatch(r"( +)  (#?)(.*)", lines[first]).groups()  # type: ignore[union-attr]
    yield f"{indent}{mark}- {field}"
    yield from lines[first + 1 :]


def _text(field: Field) -> str:
    text = field.description
    if field.bounds and "one of" in field.bounds:
        text += f" {field.bounds.capitalize()}."
    return text


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
