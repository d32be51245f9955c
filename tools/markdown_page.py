"""The parts of a Markdown page that tools/check_docs.py reads: code blocks, links, code spans, anchors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FENCE = re.compile(r"^\s*```(.*)$")
CODE_SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
REFERENCE = re.compile(r"\]\[([^\[\]]+)\]")
DEFINITION = re.compile(r"^\[([^\[\]]+)\]: (\S+)$")
HEADING = re.compile(r"^#{1,6} (.*)$")


@dataclass(frozen=True)
class CodeBlock:
    line: int
    """Number of its first line of code."""
    language: str
    """The word after the fence; may be empty."""
    text: str


@dataclass(frozen=True)
class Page:
    path: Path
    blocks: tuple[CodeBlock, ...]
    prose: tuple[tuple[int, str], ...]
    """The lines outside of code blocks, with their numbers."""

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield the targets of all links and images; `[name]` for a reference without a definition."""
        definitions = {match[1]: match[2] for _, line in self.prose if (match := DEFINITION.match(line))}
        for number, line in self.prose:
            text = CODE_SPAN.sub("", line)
            yield from ((number, target) for target in LINK.findall(text))
            yield from ((number, definitions.get(name, f"[{name}]")) for name in REFERENCE.findall(text))

    def code_spans(self) -> Iterator[tuple[int, str]]:
        for number, line in self.prose:
            for span in CODE_SPAN.findall(line):
                yield number, span

    def anchors(self) -> frozenset[str]:
        """Return the anchors that GitHub gives the headings; the site is configured to give the same."""
        used: Counter[str] = Counter()
        anchors = set()
        for _, line in self.prose:
            if heading := HEADING.match(line):
                anchor = slugify(heading[1])
                anchors.add(f"{anchor}-{used[anchor]}" if used[anchor] else anchor)
                used[anchor] += 1
        return frozenset(anchors)


def slugify(heading: str) -> str:
    """Return a heading's anchor: lower case, without punctuation, a hyphen for each space."""
    text = re.sub(r"\]\([^()]*\)", "", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


@cache
def read_page(path: Path) -> Page:
    blocks: list[CodeBlock] = []
    prose: list[tuple[int, str]] = []
    code: list[str] | None = None
    language = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if fence and code is None:
            code = []
            language = fence[1].strip()
        elif fence and code is not None:
            blocks.append(CodeBlock(number - len(code), language, "".join(code)))
            code = None
        elif code is not None:
            code.append(line + "\n")
        else:
            prose.append((number, line))
    if code is not None:
        raise ValueError(f"{path}: a code block is not closed")
    return Page(path, tuple(blocks), tuple(prose))
