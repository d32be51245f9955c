"""A finalizer that formats a traceback, as asyncio's tasks do, does not break a parser that it interrupts."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path
from typing import ClassVar


class Formatting:
    """An object in a reference cycle whose finalizer formats a traceback."""

    formatted = 0
    empty: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        try:
            self.empty["missing"] + 1
        except KeyError:
            traceback.format_exc()
            Formatting.formatted += 1


def test_a_source_is_parsed_while_finalizers_format_tracebacks() -> None:
    source = Path(ast.__file__).read_text()
    before = Formatting.formatted
    while Formatting.formatted == before:
        Formatting()
        ast.parse(source)
