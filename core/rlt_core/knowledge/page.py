"""docs/troubleshooting.md, generated from the knowledge base."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlt_core.knowledge.entries import Entry, load_entries
from rlt_core.knowledge.pattern import Pattern

HEADER = """# Troubleshooting
<!-- Generated from core/rlt_core/knowledge/entries by `make generate`. Do not edit. -->

What a failed run prints, why, and what to do. [`rlt diagnose`](cli.md#find-known-failures-in-logs) searches logs for
the messages of this page, and [`status.findings`](failures.md#known-failures) has those of a job. In a message,
… stands for any text, and (a|b) for one of several texts. Fields that begin with `spec.` are those of an
[RLTrainingJob](reference/rltrainingjob.md).

A *warning* does not end a run, and may explain why another failure did. A *wrapper* reports that another process
failed: the cause is earlier in the log, or in another log.

"""
TITLES = {
    "kubernetes": "Pods and nodes",
    "hardware": "Hardware",
    "devices": "Visible GPUs and drivers",
    "rocm": "AMD GPUs",
    "ascend": "Ascend NPUs",
    "build": "Images and compilers",
    "python": "Python and its packages",
    "ray": "Ray",
    "nccl": "NCCL, Gloo and the network",
    "storage": "Files and storage",
    "data": "Data, models and tokenizers",
    "config": "Configuration of the program",
    "memory": "Memory",
    "vllm": "vLLM",
    "hangs": "Hangs and timeouts",
    "numerics": "Numerics and rewards",
    "metrics": "Metrics of the training",
    "checkpoint": "Checkpoints",
}
"""Topic -> title of its section, in the order in which a run can fail."""
PART = re.compile(r"<<(.*?)>>")
"""The variable part of a pattern: a regular expression."""
CHOICE = re.compile(r"\(\?:((?:[^\\()\[?*+]|\\\.)+)\)")
"""A regular expression that matches one of several literal texts."""
NAME = re.compile(r'\bspec\.[\w.\[\]]*[\w\]](?:: \w+)?|(?:--|\b)[\w./]*[A-Za-z]_\w[\w.=:"]*[\w"](?:\(\w*\))?')
"""A field, or a variable or option with an underscore, and perhaps its value."""


def build_troubleshooting_page() -> str:
    """Build the page: a section for each topic with its entries."""
    sections = {title: [each for each in load_entries() if each.topic == topic] for topic, title in TITLES.items()}
    contents = "\n".join(f"- [{title}](#{_build_anchor(title)})" for title in sections)
    return HEADER + "\n\n".join([contents, *(_build_section(*each) for each in sections.items())]) + "\n"


def _build_section(title: str, entries: Sequence[Entry]) -> str:
    return "\n\n".join([f"## {title}", *map(_build_entry, entries)])


def _build_entry(entry: Entry) -> str:
    kind = "" if entry.severity == "error" else f"*{entry.severity.capitalize()}.* "
    lines = [f"### {entry.code}", ""]
    if entry.patterns:
        lines += ["The last line of a log:", ""] if entry.at_end else []
        lines += ["```text", *dict.fromkeys(map(_show_pattern, entry.patterns)), "```", ""]
    if entry.observation:
        lines += [f"**Sign:** {_mark_names(entry.observation)}", ""]
    lines += [
        f"{kind}{_mark_names(entry.message)}",
        "",
        f"**Remedy:** {_mark_names(entry.remedy)} ([source]({entry.source}))",
    ]
    return "\n".join(lines)


def _show_pattern(pattern: Pattern) -> str:
    """The message without regular expressions: (a|b) for a choice of texts, and … for any other variable part."""

    def show(part: re.Match[str]) -> str:
        choice = CHOICE.fullmatch(part[1])
        return f"({choice[1]})".replace("\\.", ".") if choice else "…"

    return re.sub(r"…(?: ?…)+", "…", PART.sub(show, pattern.text)).strip()


def _mark_names(text: str) -> str:
    """Format fields and variables as code, outside of what is code already."""
    parts = text.split("`")
    return "`".join(part if index % 2 else NAME.sub(r"`\g<0>`", part) for index, part in enumerate(parts))


def _build_anchor(title: str) -> str:
    """The anchor of a heading, as GitHub and mkdocs.yml build it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
