"""A known failure as a card: what happened, where, the evidence, what to do, and a link."""

from __future__ import annotations

from collections.abc import Mapping

import click

from rlt_cli.table import wrap

COLORS = {"error": "red", "warning": "yellow"}


def format_card(finding: Mapping[str, object], where: str, width: int | None = None) -> str:
    """Return the lines of a finding from `rlt diagnose` or status.findings, with at most `width` characters."""
    rows = {
        "what": finding["message"],
        "where": where,
        "evidence": finding["evidence"],
        "remedy": finding["remedy"],
        "more": finding["source"],
    }
    severity = str(finding["severity"])
    title = click.style(f"{finding['code']} ({severity})", fg=COLORS.get(severity), bold=True)
    lines = [line for key, text in rows.items() if text for line in wrap(str(text), width, start=f"   {key:<8}  ")]
    return "\n".join([title, *lines])
