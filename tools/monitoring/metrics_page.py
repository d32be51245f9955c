"""The list of metrics at the end of docs/observability.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from monitoring.declarations import OF_A_JOB, Metric, list_driver_metrics, list_operator_metrics

MARKER = "<!-- metrics: written by tools/generate.py -->\n"
"""The text above it is written by hand."""


def build_metrics_page(text: str) -> str:
    """Replace the list of metrics in the text of the page."""
    head, marker, _ = text.partition(MARKER)
    assert marker, f"docs/observability.md lacks the line {MARKER!r}"
    lines = ["", "## Metrics of the operator", *_build_table(list_operator_metrics())]
    lines += ["", "## Metrics of the drivers", f"All have the labels `{'` and `'.join(OF_A_JOB)}`."]
    lines[-1] += " The last column has the names in `metrics.jsonl`."
    lines += ["", *_build_table(list_driver_metrics(), keys=True)]
    return f"{head}{marker}" + "".join(f"{line}\n" for line in lines)


def _build_table(metrics: Iterable[Metric], *, keys: bool = False) -> Iterator[str]:
    yield "| metric | type | labels | unit | meaning |" + (" step metric |" if keys else "")
    yield "|---|---|---|---|---|" + ("---|" if keys else "")
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels if not keys or label not in OF_A_JOB)
        meaning = metric.help.rstrip(".").replace("|", "\\|")
        row = f"| `{metric.name}` | {metric.type} | {labels or '-'} | {metric.unit} | {meaning} |"
        yield row + (f" {', '.join(f'`{key}`' for key in metric.keys) or '-'} |" if keys else "")
