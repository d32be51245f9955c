"""Summaries of runs as Markdown: text of a run that looks like HTML or Markdown is text."""

from __future__ import annotations

import re

import pytest
from recorded_run import HOSTILE, build_run

from rlt.report.markdown import build_summary, escape
from rlt.report.summary import Origin

ORIGIN = Origin("1.2.3", "2026-01-02T03:04:05Z")


def test_a_run_without_records_has_a_summary() -> None:
    empty = build_run(config={}, steps=[], rollouts=[], rollouts_step=None, findings=[], attempts=[])
    assert "No problems found." in build_summary(empty, ORIGIN)


def test_the_summary_is_markdown() -> None:
    lines = build_summary(build_run(), ORIGIN).splitlines()
    assert lines[0] == "## sum"
    assert "**Running**: The Ray job is running." in lines
    assert lines[lines.index("| --- | --- | --- | --- | --- |") + 1].startswith(
        "| reward | 0.025 | 0.8875 | 1 (step 40) | ▁"
    )
    assert "time of a step: gen 75 %, update\\_actor 25 %" in lines
    assert "- **KlRunaway**: m Evidence: e. r" in lines
    assert "| 1 | ProgramFailed |  | gpu\\-7 | boom |" in lines
    assert "- Missing: No rollouts." in lines


@pytest.mark.parametrize("text", [*HOSTILE, "a | b\n| c", "[x](https://a.b) @user #12 `x` **b** ![i](u)"])
def test_hostile_text_in_the_summary_is_escaped(text: str) -> None:
    escaped = escape(text)
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)[<>|`*\[]", escaped)
    assert not re.search(r"[@#]\w", escaped)
    assert escape("x" * 1000).endswith("…")
