"""The pages of docs/troubleshooting, generated from the knowledge base: an index, and a page for each topic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rlt_core.knowledge.entries import Entry, load_entries
from rlt_core.knowledge.pattern import Pattern

GENERATED = "<!-- Generated from core/rlt_core/knowledge/entries by `make generate`. Do not edit. -->"
INDEX = f"""# Troubleshooting
{GENERATED}

What a failed run prints, why, and what to do. Search this page for a code or for a part of a message.
[`rlt diagnose`](../cli.md#find-known-failures-in-logs) searches logs for these messages, and
[`status.findings`](../failures.md#known-failures) lists what the operator found in a job.

In a message, … stands for any text, and (a|b) for one of several texts. A *warning* does not end a run, and may explain
why another failure did. A *wrapper* reports that another process failed: the cause is earlier in the log, or in another
log. Fields that begin with `spec.` belong to an [RLTrainingJob](../reference/rltrainingjob.md).

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
    "config": "Program configuration",
    "memory": "Memory",
    "vllm": "vLLM",
    "hangs": "Hangs and timeouts",
    "numerics": "Numerics and rewards",
    "metrics": "Training metrics",
    "checkpoint": "Checkpoints",
    "unknown": "Unknown failures",
}
"""Topic -> title of its page, in the order in which a run can fail."""
PART = re.compile(r"<<(.*?)>>")
"""The variable part of a pattern: a regular expression."""
CHOICE = re.compile(r"\(\?:((?:[^\\()\[?*+]|\\\.)+)\)")
"""A regular expression that matches one of several literal texts."""
NAME = re.compile(r'\bspec\.[\w.\[\]]*[\w\]](?:: \w+)?|(?:--|\b)[\w./]*[A-Za-z]_\w[\w.=:"]*[\w"](?:\(\w*\))?')
"""A field, or a variable or option with an underscore, and perhaps its value."""


def build_troubleshooting_pages() -> dict[str, str]:
    """Build the pages by file name: index.md, and TOPIC.md with the entries of each topic."""
    entries = {topic: [entry for entry in load_entries() if entry.topic == topic] for topic in TITLES}
    pages = {f"{topic}.md": _build_topic(TITLES[topic], entries[topic]) for topic in TITLES}
    return {"index.md": _build_index(entries), **pages}


def _build_index(entries: Mapping[str, Sequence[Entry]]) -> str:
    sections = [
        "\n".join([f"## [{title}]({topic}.md)", *(_build_item(topic, entry) for entry in entries[topic])])
        for topic, title in TITLES.items()
    ]
    return INDEX + "\n\n".join(sections) + "\n"


def _build_item(topic: str, entry: Entry) -> str:
    """The link to an entry, with its messages, or the sign of an entry without messages."""
    messages = ", ".join(map(_format_code, _show_messages(entry)))
    return f"- [{entry.code}]({topic}.md#{entry.code.lower()}): {messages or _mark_names(entry.observation)}"


def _format_code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _build_topic(title: str, entries: Sequence[Entry]) -> str:
    header = f"# {title}\n{GENERATED}\n\n[All failures](index.md) explains the notation."
    return "\n\n".join([header, *map(_build_entry, entries)]) + "\n"


def _build_entry(entry: Entry) -> str:
    kind = "" if entry.severity == "error" else f"*{entry.severity.capitalize()}.* "
    lines = [f"## {entry.code}", ""]
    if entry.patterns:
        lines += ["The last line of a log:", ""] if entry.at_end else []
        lines += ["```text", *_show_messages(entry), "```", ""]
    if entry.observation:
        lines += [f"**Sign:** {_mark_names(entry.observation)}", ""]
    lines += [
        f"{kind}{_mark_names(entry.message)}",
        "",
        f"**Remedy:** {_mark_names(entry.remedy)} ([source]({entry.source}))",
    ]
    return "\n".join(lines)


def _show_messages(entry: Entry) -> list[str]:
    return list(dict.fromkeys(map(_show_pattern, entry.patterns)))


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
