"""The examples of docs/python.md, which tests run: each Python block that has an output."""

from __future__ import annotations

import contextlib
import io
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_page import CodeBlock, read_page

PAGE = Path(__file__).parents[2] / "docs/python.md"


def read_examples() -> list[tuple[CodeBlock, CodeBlock]]:
    """Each Python block with the text block that follows it."""
    blocks = read_page(PAGE).blocks
    pairs = pairwise(blocks)
    return [(code, text) for code, text in pairs if (code.language, text.language) == ("python", "text")]


def run_example(code: CodeBlock, text: CodeBlock, variables: dict[str, Any]) -> None:
    """Run a block, and assert its output. With UPDATE_GOLDEN=1, write the output to the page instead."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.text, f"{PAGE}:{code.line}", "exec"), variables)
    if os.environ.get("UPDATE_GOLDEN"):
        page = PAGE.read_text()
        before = f"{code.text.rstrip()}\n```\n\n```text\n"
        start = page.index(before) + len(before)
        PAGE.write_text(page[:start] + printed.getvalue() + page[page.index("```", start) :])
    else:
        assert printed.getvalue().splitlines() == text.text.splitlines(), f"{PAGE}:{text.line}"
