"""Finds phrases that the style guide replaces: `python tools/check_terms.py [FILE…]`, by default in tracked text files.

It prints `file:line: phrase: what to write` and fails on any finding. The phrases are in tools/terms.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TERMS = ROOT / "tools/terms.txt"
SUFFIXES = {".lua", ".md", ".py", ".sh", ".tpl", ".toml", ".yaml", ".yml"}
EXCLUDED = {ROOT / "docs/style.md", ROOT / "tools/tests/test_check_terms.py"}
"""The style guide and the test quote the phrases."""
SPACE = r"\s+(?:#+\s+)?"
"""Between two words: also a line break inside a comment."""


def main() -> None:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or tracked_files()
    terms = read_terms(TERMS.read_text())
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}: write {replacement}"
        for path in paths
        if path.suffix in SUFFIXES and path not in EXCLUDED
        for line, phrase, replacement in find_terms(path.read_text(), terms)
    ]
    print("".join(f"{line}\n" for line in found), end="")
    if found:
        sys.exit(f"{len(found)} phrases that docs/style.md replaces")


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def read_terms(text: str) -> list[tuple[re.Pattern[str], str]]:
    """Return patterns and what to write instead."""
    lines = [line.split(" -> ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(re.compile(phrase.replace(" ", SPACE), re.IGNORECASE), replacement) for phrase, replacement in lines]


def find_terms(text: str, terms: list[tuple[re.Pattern[str], str]]) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and replacement of each match."""
    for pattern, replacement in terms:
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), replacement


if __name__ == "__main__":
    main()
