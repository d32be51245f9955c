"""The examples of the repository, which the package contains, and the header of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rlt_api.findings.spelling import find_nearest_word

KEYS = ("Hardware", "Needs", "Time", "Result")
"""The last lines of a header, in this order."""
FILE = re.compile(r"(\d\d)-([a-z0-9-]+)\.yaml")


@dataclass(frozen=True, eq=False)
class Example:
    """A file examples/NUMBER-NAME.yaml."""

    number: str
    """Two digits."""
    name: str
    title: str
    """What it shows, in one sentence."""
    details: str
    """Further sentences, with the line breaks of the file. May be empty."""
    facts: Mapping[str, str]
    """Hardware, prerequisites, duration and result, by KEYS."""
    text: str
    """The manifest with the header, without the line for editors."""

    @property
    def file(self) -> str:
        """Name of the file."""
        return f"{self.number}-{self.name}.yaml"


@cache
def load_examples() -> tuple[Example, ...]:
    """Read all examples, by their numbers."""
    return tuple(sorted(_read(), key=lambda each: each.number))


def find_example(name: str) -> Example | None:
    """The example with this name, number (7 or 07), or name of its file."""
    number = name.zfill(2)
    return next((each for each in load_examples() if name in (each.name, each.file) or number == each.number), None)


def find_similar_names(name: str) -> list[str]:
    """The names that contain a mistyped one, else the nearest name. Empty without one."""
    names = [each.name for each in load_examples()]
    nearest = find_nearest_word(name, names, max_distance=4)
    return [each for each in names if name in each] or ([nearest] if nearest else [])


def parse_example(file: str, content: str) -> Example:
    """Parse the content of a file. Raises ValueError if its header has another form.

    The header is a line for editors and comments: the title, further lines, an empty one, and one paragraph for each of
    KEYS, whose continuation lines are indented.
    """
    number, name = FILE.fullmatch(file).groups()  # type: ignore[union-attr]
    editor, _, text = content.partition("\n")
    lines = [line.removeprefix("#").removeprefix(" ") for line in _take_comments(text)]
    title = lines[0] if lines else ""
    end = lines.index("") if "" in lines else len(lines)
    facts: dict[str, str] = {}
    for line in lines[end + 1 :]:
        key, colon, value = line.partition(": ")
        if colon and key in KEYS:
            facts[key] = value
        elif line.startswith("  ") and facts:
            facts[[*facts][-1]] += f" {line.strip()}"
    if not editor.startswith("# yaml-language-server:") or not title.endswith(".") or tuple(facts) != KEYS:
        raise ValueError(f"{file}: the header must be a title and {', '.join(KEYS)}, as in 01-arithmetic-grpo.yaml")
    return Example(number, name, title, "\n".join(lines[1:end]), facts, text)


def _read() -> Iterator[Example]:
    for each in resources.files("rlt_cli").joinpath("examples").iterdir():
        if FILE.fullmatch(each.name):
            yield parse_example(each.name, each.read_text(encoding="utf-8"))


def _take_comments(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield line
