"""Manifests of `rlt init`: an example or a runtime with another name, optionally with every field of the API."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import yaml

from rlt_cli.field_guide import Field, spec_field

WIDTH = 120
NAME = re.compile(r"(?<=^metadata:\n  name: ).*", re.M)
BLOCK = re.compile(r"^  (\w+):.*\n(?:    .*\n)*", re.M)
"""A block of the spec with its name."""


def load_runtime() -> str:
    """The manifest of an RLRuntime."""
    return resources.files("rlt_cli").joinpath("templates", "runtime.yaml").read_text(encoding="utf-8")


def set_name(text: str, name: str) -> str:
    """Replace the name of the object."""
    return NAME.sub(lambda _: _flow(name), text, count=1)


def use_runtime(text: str, runtime: str) -> str:
    """Replace the settings that an RLRuntime provides, image, pods and volume, by its name."""
    cluster = yaml.safe_load(text)["spec"]["cluster"]
    lines = ["  cluster:\n"]
    lines += [f"    env: {_flow(cluster['env'])}\n"] if "env" in cluster else []
    groups = ({key: group[key] for key in ("name", "replicas") if key in group} for group in cluster["workers"])
    lines += ["    workers:\n", *(f"      - {_flow(group)}\n" for group in groups)]
    replaced = {"runtimeRef": "", "storage": "", "cluster": "".join(lines)}
    text = BLOCK.sub(lambda block: replaced.get(block[1], block[0]), text)
    return text.replace("spec:\n", f"spec:\n  runtimeRef: {{name: {_flow(runtime)}}}\n", 1)


def add_all_fields(text: str) -> str:
    """Add every field that a template does not set, commented out, with its default.

    `# ` begins a description. A # without a space begins a field: remove the # to set it.
    """
    manifest = yaml.safe_load(text)
    head = text[: text.index("spec:\n")] + "spec:\n"
    lines = [line for field in spec_field(manifest["kind"]).fields for line in _lines(field, manifest["spec"], "  ")]
    return head + "\n".join(lines) + "\n"


def _lines(field: Field, block: Mapping[str, Any] | None, indent: str) -> Iterator[str]:
    """A field and its child fields. `block`: the values that the template sets in the enclosing block."""
    value = (block or {}).get(field.name)
    mark = "#" if value is None else ""
    width = WIDTH - len(indent) - 2
    for line in textwrap.wrap(_description(field), width, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"
    if not field.fields:
        yield f"{indent}{mark}{field.name}: {_flow(value) if value is not None else _default(field, indent)}".rstrip()
    elif "items" not in field.schema:
        yield f"{indent}{mark}{field.name}:"
        for child in field.fields:
            yield from _lines(child, value, f"{indent}  ")
    else:
        yield f"{indent}{mark}{field.name}:"
        for item in value or [{}]:
            # The fields that are set come first: the first field gets the dash.
            fields = sorted(field.fields, key=lambda child: child.name not in item)
            yield from _item([line for child in fields for line in _lines(child, item, f"{indent}    ")])


def _item(lines: list[str]) -> Iterator[str]:
    """The lines of a list item: the first field gets the dash."""
    first = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("# "))
    yield from lines[:first]
    indent, mark, field = re.fullmatch(r"( +)  (#?)(.*)", lines[first]).groups()  # type: ignore[union-attr]
    yield f"{indent}{mark}- {field}"
    yield from lines[first + 1 :]


def _default(field: Field, indent: str) -> str:
    """The default; empty without one, and for one that does not fit in a line: the description explains it."""
    default = field.default or ""
    return default if len(f"{indent}#{field.name}: {default}") <= WIDTH else ""


def _description(field: Field) -> str:
    text = field.description
    if field.bounds and "one of" in field.bounds:
        text += f" {field.bounds.capitalize()}."
    return text


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
