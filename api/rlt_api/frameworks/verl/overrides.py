"""Overrides of Hydra's command line: https://hydra.cc/docs/advanced/override_grammar/basic/ (Hydra 1.3)."""

from __future__ import annotations

import re

from pydantic import JsonValue

PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+-]*")
"""Text that the grammar reads as itself, apart from KEYWORDS."""
KEYWORDS = frozenset({"true", "false", "null", "nan", "inf"})


def format_override(key: str, value: JsonValue) -> str:
    """Format one override. A key with ++ in front adds what the config does not contain."""
    return f"{key}={format_value(value)}"


def format_value(value: JsonValue) -> str:
    """Format a value so that Hydra and OmegaConf read the same value, of the same type."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return _format_text(value)
        case list():
            return f"[{','.join(format_value(each) for each in value)}]"
        case dict():
            return f"{{{','.join(f'{key}:{format_value(each)}' for key, each in value.items())}}}"


def _format_text(text: str) -> str:
    """Quote the text if the grammar gives it another meaning.

    In quotes, a backslash has a meaning only in front of a quote (Hydra) and of ${, an interpolation (OmegaConf).
    """
    if PLAIN.fullmatch(text) and text.lower() not in KEYWORDS:
        return text
    text = re.sub(r"(?<!\\)(\\*)\$\{", r"\1\1\\${", text)
    text = re.sub(r"(?<!\\)(\\*)'", r"\1\1\\'", text)
    return f"'{text}{text[len(text.rstrip(chr(92))) :]}'"
