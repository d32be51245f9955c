"""Where the settings of verl, ROLL and their launch scripts are in a job: mapping.toml, read, and as a page."""

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

from rlt_api.schema import Schema, schema_of
from rlt_api.spec import RLTrainingJobSpec


@dataclass(frozen=True)
class Setting:
    """One of their settings, or a group of them: a key with * in it. Of ours, reason and now, one is given."""

    key: str
    ours: tuple[str, ...]
    """Paths of our fields."""
    reason: str
    """Why there is no such field."""
    now: str
    """verl's key of today."""
    default: Any
    """Theirs, as JSON."""
    note: str
    added: bool
    """verl reads it without having it in its config."""
    gone: bool
    """verl no longer has it."""
    profile: bool
    """Whether the operator's network profiles choose it."""

    @property
    def is_group(self) -> bool:
        return "*" in self.key

    @property
    def in_config(self) -> bool:
        """Whether verl's config of today has it."""
        return not (self.added or self.gone or self.now)


@dataclass(frozen=True)
class Mapped:
    """The whole of mapping.toml."""

    verl_version: str
    verl: tuple[Setting, ...]
    roll: tuple[Setting, ...]
    environment: tuple[Setting, ...]
    launch: tuple[Setting, ...]


@functools.cache
def mapping() -> Mapped:
    """What mapping.toml says."""
    data = tomllib.loads(resources.files("rlt_api").joinpath("mapping.toml").read_text())
    tables = {
        name: tuple(_setting(*item) for item in table.items()) for name, table in data.items() if name != "verl_version"
    }
    return Mapped(verl_version=data["verl_version"], **tables)


def find(key: str, settings: Iterable[Setting]) -> Setting | None:
    """The setting of that name, else the first group that it belongs to."""
    settings = tuple(settings)
    exact = next((setting for setting in settings if setting.key == key), None)
    return exact or next((s for s in settings if s.is_group and fnmatchcase(key, s.key)), None)


def field(path: str) -> Schema | None:
    """The schema of one of our fields by its path, such as spec.cluster.workers[].replicas; None if there is none."""
    node = schema_of(RLTrainingJobSpec)
    for part in path.split(".")[1:]:
        name = part.removesuffix("[]")
        if name not in node.get("properties", {}):
            return None
        node = node["properties"][name]
        if part.endswith("[]"):
            node = node["items"]
    return node


def verl_roll_mapping() -> str:
    """The page docs/reference/verl-roll-mapping.md."""
    mapped = mapping()
    return "\n".join(
        [
            "<!-- Generated from crds/rlt_api/mapping.toml by `make generate`. Do not edit. -->",
            "# From verl and ROLL to rlt",
            "",
            INTRODUCTION.format(version=mapped.verl_version),
            "",
            f"## verl {mapped.verl_version}",
            "",
            "| verl | its default | rlt | its default | remarks |",
            "|---|---|---|---|---|",
            *(_verl_row(setting, mapped.verl) for setting in mapped.verl),
            "",
            "## ROLL",
            "",
            *_table("ROLL", mapped.roll),
            "",
            "## Environment variables",
            "",
            "A variable that is not here goes to `spec.cluster.env` as it is.",
            "",
            *_table("variable", mapped.environment),
            "",
            "## Launch scripts",
            "",
            *_table("option", mapped.launch),
            "",
        ]
    )


INTRODUCTION = """\
A verl or ROLL command runs as it is, with its own keys, as a job of `framework.type: command`:
[how](../command-jobs.md). These tables are for the other way: the same settings as fields of a job, which rlt's own
trainer or its operator reads.

A `*` in a key stands for anything. Every key of `ppo_trainer` in verl {version} is here, by itself or in such a group,
with the default that it has there. A dash means that there is no such field, and the remark says why."""

PATH = re.compile(r"\bspec(\.\w+(\[\])?)+")
"""One of our fields in a text."""

PROFILE = "The operator's network profile chooses it, unless the job says."


def _setting(key: str, entry: Mapping[str, Any]) -> Setting:
    ours = entry.get("ours", ())
    return Setting(
        key=key,
        ours=(ours,) if isinstance(ours, str) else tuple(ours),
        reason=entry.get("reason", ""),
        now=entry.get("now", ""),
        default=entry.get("default"),
        note=entry.get("note", ""),
        added=entry.get("added", False),
        gone=entry.get("gone", False),
        profile=entry.get("profile", False),
    )


def _verl_row(setting: Setting, settings: tuple[Setting, ...]) -> str:
    if setting.now:
        today = find(setting.now, settings)
        assert today
        return _row(_code(setting.key), "", _paths(today), "", f"Today `{setting.now}`.")
    plus = "+" if setting.added else ""
    theirs = _code(json.dumps(setting.default)) if setting.ours and setting.in_config else ""
    ours = _default(setting.ours[0]) if len(setting.ours) == 1 else ""
    return _row(_code(plus + setting.key), theirs, _paths(setting), ours, _remarks(setting))


def _table(title: str, settings: tuple[Setting, ...]) -> list[str]:
    rows = [_row(_code(setting.key), _paths(setting), _remarks(setting)) for setting in settings]
    return [f"| {title} | rlt | remarks |", "|---|---|---|", *rows]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`"


def _paths(setting: Setting) -> str:
    return ", ".join(map(_code, setting.ours)) or "-"


def _remarks(setting: Setting) -> str:
    words = [setting.reason, setting.note, PROFILE if setting.profile else ""]
    return PATH.sub(lambda found: _code(found[0]), " ".join(filter(None, words)))


def _default(path: str) -> str:
    """What our field is if it is not given: a value, or the words of its description."""
    schema = field(path)
    assert schema is not None, path
    if schema.get("default") is not None and not schema.get("properties"):
        return _code(json.dumps(schema["default"]))
    words = re.search(r"Default: (.+?)\.(?:\s|$)", schema.get("description", "").replace("\n", " "))
    return words[1] if words else ""
