"""The page docs/examples.md, generated from the headers of the examples."""

from __future__ import annotations

from rlt_cli.gallery import KEYS, Example, load_examples

INTRODUCTION = """\
<!-- Generated from the headers of examples/*.yaml by `make generate`. Do not edit. -->
# Examples
Each example is a complete job that shows one thing. The package of the command line contains them:

```sh
rlt init --list                  # number, name, hardware and what it shows
rlt init dapo > job.yaml         # by name or number
rlt init dapo --runtime gpu      # without image, pods and volume, which an RLRuntime provides
```

The tests validate every example and render it for nodes that fit. Those for GPUs have not run: see
[what has not run on a GPU](training.md#what-has-not-run-on-a-gpu). Images, PVCs and paths are placeholders for yours.

| example | hardware | shows |
|---|---|---|
"""


def build_examples_page() -> str:
    """Return the page in Markdown."""
    examples = load_examples()
    return INTRODUCTION + "".join(map(_build_row, examples)) + "".join(map(_build_section, examples))


def _build_row(example: Example) -> str:
    anchor = f"{example.number}-{example.name}"
    return f"| [{example.name}](#{anchor}) | {example.facts['Hardware']} | {_escape(example.title)} |\n"


def _build_section(example: Example) -> str:
    facts = "".join(f"- **{key}**: {_escape(example.facts[key])}\n" for key in KEYS)
    details = f"{_escape(example.details)}\n" if example.details else ""
    return f"\n## {example.number} {example.name}\n{_escape(example.title)}\n{details}\n{facts}"


def _escape(text: str) -> str:
    """Text without Markdown's tags and headings."""
    return text.replace("<", "&lt;").replace("####", "\\####")
