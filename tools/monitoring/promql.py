"""The metrics that a PromQL expression queries. promtool checks the syntax; this only finds names."""

from __future__ import annotations

import re

STRING = re.compile(r'"(?:\\.|[^"\\])*"')
LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
SELECTOR = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
NAME = re.compile(r"(?<![\w.:$])[A-Za-z_:][\w:]*(?!\s*\(|[\w:])")
WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"}


def list_metrics(expression: str) -> frozenset[str]:
    """Return the names of metrics: no functions, operators, labels, durations and variables of Grafana."""
    text = SELECTOR.sub("", LABELS.sub(" ", STRING.sub('""', expression)))
    return frozenset(name for name in NAME.findall(text) if name.lower() not in WORDS)
