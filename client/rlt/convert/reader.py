"""Reading an object of the source field by field, so that each field is in the job or in a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.text import SECRET

Json = dict[str, Any]
MAX_TEXT = 60


class Reader:
    """An object of the source whose fields are taken one by one. Comments name the others."""

    def __init__(self, draft: Draft, value: Any, path: str) -> None:
        self.draft = draft
        self.path = path
        self.left = dict(value) if isinstance(value, dict) else {}
        if value is not None and not isinstance(value, dict):
            self._leave_out(path, value, "it is not an object")

    def take(self, key: str, default: Any = None) -> Any:
        """Take a field."""
        return self.left.pop(key, default)

    def take_list(self, key: str) -> list[Any]:
        """Take a list. Another value is named in a comment."""
        value = self.take(key)
        if value is not None and not isinstance(value, list):
            self._leave_out(self.join(key), value, "it is not a list")
        return value if isinstance(value, list) else []

    def child(self, key: str) -> Reader:
        """Take an object."""
        return Reader(self.draft, self.take(key), self.join(key))

    def children(self, key: str) -> list[Reader]:
        """Take a list of objects."""
        return [
            Reader(self.draft, each, f"{self.join(key)}[{index}]") for index, each in enumerate(self.take_list(key))
        ]

    def move(self, key: str, field: str) -> None:
        """Carry over a field under another name. Another value than the job's is named in a comment."""
        value = self.take(key)
        if value is None:
            return
        known = self.draft.get(field)
        if known is None:
            self.draft.put(field, value)
        elif known != value:
            self.name(key, value, f"the job has one spec.{field}: {show(known)}")

    def name(self, key: str, value: Any, why: str) -> None:
        """Name a field that was taken in a comment."""
        self._leave_out(self.join(key), value, why)

    def leave(self, keys: tuple[str, ...], why: str) -> None:
        """Name these fields in comments."""
        for key in keys:
            if key in self.left:
                self.name(key, self.take(key), why)

    def leave_rest(self, why: str = "no counterpart") -> None:
        """Name the fields that were not taken in comments."""
        self.leave(tuple(self.left), why)

    def join(self, key: str) -> str:
        """The path of a field."""
        return f"{self.path}.{key}" if self.path else str(key)

    def _leave_out(self, path: str, value: Any, why: str) -> None:
        if value not in (None, {}, [], ""):
            self.draft.leave_out(f"{path} {show(value)}", why, self.draft.find_line(path))


def show(value: Any) -> str:
    """A value on one line, with long texts shortened and without the values of secrets."""
    if isinstance(value, str):
        return shorten(value)
    return json.dumps(_shorten_all(value), ensure_ascii=False, default=str)


def shorten(text: str) -> str:
    """Text on one line, at most MAX_TEXT characters of it."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"


def write_number(value: float) -> str:
    """A number as people write it: 1e-6 for 1e-06."""
    return re.sub(r"e([+-])0*(?=\d)", lambda sign: f"e{sign[1].strip('+')}", repr(value))


def flatten(config: Json, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each field that is not an object with fields."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{path}.")
        else:
            yield path, value


def _shorten_all(value: Any) -> Any:
    if isinstance(value, dict):
        hidden = "value" if SECRET.search(str(value.get("name", "")).upper()) else None
        return {
            str(key): "…"
            if key == hidden or (SECRET.search(str(key).upper()) and isinstance(each, str))
            else _shorten_all(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_shorten_all(each) for each in value]
    return shorten(value) if isinstance(value, str) else value
