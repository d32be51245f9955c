"""docs/troubleshooting.md, generated from the knowledge base."""

from __future__ import annotations

from rlt_core.knowledge.entries import Entry, load_entries

HEADER = """# Troubleshooting
<!-- Generated from core/rlt_core/knowledge/entries by `make generate`. Do not edit. -->

What a failed run prints, why, and what to do. [`rlt diagnose`](cli.md#find-known-failures-in-logs) searches logs for
all of it. In a message, … stands for any text, and `<<…>>` for text that matches the regular expression inside. Fields
that begin with `spec.` are those of an RLTrainingJob.

"""
TITLES = {
    "ascend": "Ascend NPUs",
    "build": "Images and compilers",
    "checkpoint": "Checkpoints",
    "config": "Configuration of the program",
    "data": "Data, models and tokenizers",
    "devices": "GPUs of a process",
    "hangs": "Programs that wait",
    "hardware": "Hardware",
    "kubernetes": "Pods and nodes",
    "memory": "Memory",
    "nccl": "NCCL, gloo and the network",
    "numerics": "Numerics and rewards",
    "python": "Python and its packages",
    "ray": "Ray",
    "rocm": "AMD GPUs",
    "storage": "Files and storage",
    "vllm": "vLLM",
}
"""Topic -> title of its section."""


def build_troubleshooting_page() -> str:
    """Build the page: a section for each topic with its entries."""
    sections = []
    for topic, title in sorted(TITLES.items(), key=lambda each: each[1].lower()):
        entries = [entry for entry in load_entries() if entry.topic == topic]
        sections.append("\n\n".join([f"## {title}", *map(_build_entry, entries)]))
    return HEADER + "\n\n".join(sections) + "\n"


def _build_entry(entry: Entry) -> str:
    kind = "" if entry.severity == "error" else f" *{entry.severity.capitalize()}.*"
    lines = [
        f"### {entry.code}",
        "",
        f"{entry.message}{kind}",
        "",
        f"**Remedy:** {entry.remedy} ([source]({entry.source}))",
    ]
    if entry.observation:
        lines += ["", f"**Sign:** {entry.observation}"]
    if entry.patterns:
        lines += ["", *(f"    {pattern.text}" for pattern in entry.patterns)]
    return "\n".join(lines)
