"""The mapping from settings of other programs and launch scripts to fields of a job: mapping.toml and its page."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from rlt_api.schema.model_schema import Schema, load_schema
from rlt_api.spec.job_spec import RLTrainingJobSpec


@dataclass(frozen=True)
class Setting:
    """A setting of another program, or a group of them: a key with *. It has one of fields, reason and renamed."""

    key: str
    fields: tuple[str, ...]
    """Paths of the corresponding fields."""
    reason: str
    """Why no field exists."""
    renamed: str
    """verl's current key."""
    default: Any
    """verl's default, as JSON."""
    note: str
    added: bool
    """Whether verl reads it although its config does not contain it."""
    removed: bool
    """Whether verl has removed it."""

    @property
    def is_group(self) -> bool:
        return "*" in self.key

    @property
    def in_config(self) -> bool:
        """Whether verl's current config contains it."""
        return not (self.added or self.removed or self.renamed)


@dataclass(frozen=True)
class Mapped:
    """The content of mapping.toml."""

    verl_version: str
    verl: tuple[Setting, ...]
    openrlhf: tuple[Setting, ...]
    """Every option that the operator writes for framework.type openrlhf, without its dashes."""
    roll: tuple[Setting, ...]
    environment: tuple[Setting, ...]
    launch: tuple[Setting, ...]


@functools.cache
def load_mapping() -> Mapped:
    """Load mapping.toml."""
    data = tomllib.loads(resources.files(__package__).joinpath("mapping.toml").read_text())
    tables = {
        name: tuple(_setting(*item) for item in table.items()) for name, table in data.items() if name != "verl_version"
    }
    return Mapped(verl_version=data["verl_version"], **tables)


def find(key: str, settings: Iterable[Setting]) -> Setting | None:
    """Return the setting with this key, otherwise the first group that matches it."""
    settings = tuple(settings)
    exact = next((setting for setting in settings if setting.key == key), None)
    return exact or next((s for s in settings if s.is_group and fnmatchcase(key, s.key)), None)


def find_field(path: str) -> Schema | None:
    """Return the schema of a field by its path, such as spec.cluster.workers[].replicas; None if it does not exist."""
    node = load_schema(RLTrainingJobSpec)
    for part in path.split(".")[1:]:
        name = part.removesuffix("[]")
        if name not in node.get("properties", {}):
            return None
        node = node["properties"][name]
        if part.endswith("[]"):
            node = node["items"]
    return node


def build_mapping_page() -> str:
    """Build the page docs/reference/verl-roll-mapping.md."""
    mapped = load_mapping()
    return "\n".join(
        [
            "<!-- Generated from api/rlt_api/frameworks/mapping.toml by `make generate`. Do not edit. -->",
            "# From verl, OpenRLHF and ROLL to rlt",
            "",
            INTRODUCTION.format(version=mapped.verl_version),
            "",
            f"## verl {mapped.verl_version}",
            "",
            "| verl | Default | rlt | Default | Remarks |",
            "|---|---|---|---|---|",
            *(_verl_row(setting, mapped.verl) for setting in mapped.verl),
            "",
            "## OpenRLHF",
            "",
            "The options of OpenRLHF 0.11 that the operator writes for [a job with it](../frameworks/openrlhf.md).",
            "",
            *_table("OpenRLHF", mapped.openrlhf),
            "",
            "## ROLL",
            "",
            *_table("ROLL", mapped.roll),
            "",
            "## Environment variables",
            "",
            "Set any other variable in `spec.cluster.env`.",
            "",
            *_table("Variable", mapped.environment),
            "",
            "## Launch scripts",
            "",
            *_table("Option", mapped.launch),
            "",
        ]
    )


INTRODUCTION = """\
A command of verl, OpenRLHF or ROLL runs unchanged as a [command job](../command-jobs.md) (`framework.type: command`).
These tables map its settings to fields of a job that rlt's trainer or the operator reads. The same job also runs
[with verl](../frameworks/verl.md), [with OpenRLHF](../frameworks/openrlhf.md) and [with ROLL](../frameworks/roll.md).

A `*` in a key matches anything. The tables contain every key of `ppo_trainer` in verl {version}, alone or in a group,
with verl's default. A dash means that no field exists; the remark gives the reason."""

PATH = re.compile(r"\bspec(\.\w+(\[\])?)+")
"""The path of a field in a text."""


def _setting(key: str, entry: Mapping[str, Any]) -> Setting:
    fields = entry.get("fields", ())
    return Setting(
        key=key,
        fields=(fields,) if isinstance(fields, str) else tuple(fields),
        reason=entry.get("reason", ""),
        renamed=entry.get("renamed", ""),
        default=entry.get("default"),
        note=entry.get("note", ""),
        added=entry.get("added", False),
        removed=entry.get("removed", False),
    )


def _verl_row(setting: Setting, settings: tuple[Setting, ...]) -> str:
    if setting.renamed:
        current = find(setting.renamed, settings)
        assert current
        return _row(_code(setting.key), "", _paths(current), "", f"Renamed to `{setting.renamed}`.")
    plus = "+" if setting.added else ""
    verl_default = _code(json.dumps(setting.default)) if setting.fields and setting.in_config else ""
    rlt_default = _default(setting.fields[0]) if len(setting.fields) == 1 else ""
    return _row(_code(plus + setting.key), verl_default, _paths(setting), rlt_default, _remarks(setting))


def _table(title: str, settings: tuple[Setting, ...]) -> list[str]:
    rows = [_row(_code(setting.key), _paths(setting), _remarks(setting)) for setting in settings]
    return [f"| {title} | rlt | Remarks |", "|---|---|---|", *rows]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`"


def _paths(setting: Setting) -> str:
    return ", ".join(map(_code, setting.fields)) or "-"


def _remarks(setting: Setting) -> str:
    remarks = [setting.reason, setting.note]
    return PATH.sub(lambda found: _code(found[0]), " ".join(filter(None, remarks)))


def _default(path: str) -> str:
    """Return the default of a field: the text in its description, or a value."""
    schema = find_field(path)
    assert schema is not None, path
    described = re.search(r"Default: (.+?)\.(?:\s|$)", schema.get("description", "").replace("\n", " "))
    if described:
        return described[1]
    return _code(json.dumps(schema["default"])) if schema.get("default") is not None else ""
