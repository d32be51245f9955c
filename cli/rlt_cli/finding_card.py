"""A known failure as a card: what happened, where, the evidence, what to do, and a link."""

from __future__ import annotations

from collections.abc import Mapping


def format_card(finding: Mapping[str, object], where: str) -> str:
    """Return the lines of a finding of `rlt diagnose` or of status.findings."""
    rows = {
        "what": finding["message"],
        "where": where,
        "evidence": finding["evidence"],
        "remedy": finding["remedy"],
        "more": finding["source"],
    }
    title = f"{finding['code']} ({finding['severity']})"
    return "\n".join([title, *(f"   {key:<8}  {text}" for key, text in rows.items() if text)])
