"""A report as one HTML file. It loads nothing: no script, no font, no image of another address.

Everything that a run recorded is text: the elements of rlt.report.markup escape it, and a content security policy
forbids scripts and requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element

from rlt.metric_text import format_number
from rlt.report.chart import draw_small
from rlt.report.charts import draw_learning, draw_times
from rlt.report.comparison import flatten
from rlt.report.markup import element, write_page
from rlt.report.summary import UNITS, MetricSummary, Origin, compute_throughput, compute_time_shares, summarize_metrics
from rlt.runs.rollouts import Rollout
from rlt.runs.run import Run

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
ROLLOUT_FACTS = (
    "reward",
    "advantage",
    "tokens",
    "finish_reason",
    "ground_truth",
    "images",
    "data_source",
    "index",
    "kept",
)
ATTEMPT_COLUMNS = {
    "number": "attempt",
    "reason": "reason",
    "step": "last step",
    "startTime": "started",
    "completionTime": "ended",
    "nodeAtFault": "node at fault",
    "message": "message",
}


def build_page(run: Run, origin: Origin) -> str:
    """The report of a run as HTML."""
    metrics = summarize_metrics(run.steps)
    main = element(
        "main",
        *_build_header(run, metrics),
        *_build_section("Findings", [_build_finding(each) for each in run.findings] or [_empty("No problems found.")]),
        *_build_section("What is missing", [_build_list(run.notes)] if run.notes else []),
        *_build_section("Attempts", [_build_attempts(run.attempts)] if run.attempts else []),
        *_build_section("Learning", _build_charts(run)),
        *_build_section("Time of a step", _build_times(run)),
        *_build_section(f"Rollouts of step {run.rollouts_step}", _build_rollouts(run.rollouts)),
        *_build_section("Run", [_build_facts({**run.details, "source": run.source})]),
        *_build_section("Configuration", [_build_configuration(run.config)] if run.config else []),
        element("p", f"Written by rlt {origin.version} at {origin.time}.", class_="muted"),
    )
    style = (resources.files(__package__) / "style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{run.name}: report"),
        element("style", style),
    )
    return write_page(element("html", head, element("body", main), lang="en"))


def _build_header(run: Run, metrics: Sequence[MetricSummary]) -> list[Element]:
    phase = element("span", run.phase, class_=f"phase {run.phase}" if run.phase.isalpha() else "phase")
    done = run.steps[-1]["step"] or 0 if run.steps else 0
    total = _get_total(run.config)
    bar = None
    if total:
        label = f"step {done:.0f} of {total}"
        bar = element("div", element("progress", value=done, max=total, aria_label=label), element("p", label))
    header = element("header", element("h1", run.name, phase), element("p", run.sentence), bar)
    tiles = [_build_tile(each) for each in metrics]
    speed = compute_throughput(run.steps).tokens_per_second
    if speed:
        tiles.append(_build_card("tokens a second", f"{speed:.0f}", "of all devices"))
    return [header, element("div", *tiles, class_="tiles")]


def _build_tile(metric: MetricSummary) -> Element:
    unit = f" {UNITS[metric.label]}" if metric.label in UNITS else ""
    text = f"{metric.final - metric.first:+.3g}{unit} since the start"
    return _build_card(metric.label, format_number(metric.final), text, draw_small(metric.values))


def _build_card(title: str, value: str, text: str, chart: Element | None = None) -> Element:
    small = element("small", text, class_="muted")
    return element(
        "div", element("span", title, class_="muted"), element("strong", value), small, chart, class_="card tile"
    )


def _build_section(title: str, children: Sequence[Element]) -> list[Element]:
    return [element("h2", title), *children] if children else []


def _empty(text: str) -> Element:
    return element("p", text, class_="muted")


def _build_list(texts: Sequence[str]) -> Element:
    return element("ul", *(element("li", text) for text in texts))


def _build_finding(finding: Mapping[str, Any]) -> Element:
    severity = str(finding.get("severity", ""))
    title = element("h3", f"{finding.get('code')} ({severity})", class_=severity if severity.isalpha() else "")
    rank = None if finding.get("rank") is None else f"rank {finding['rank']}"
    place = ", ".join(str(each) for each in (finding.get("pod"), finding.get("node"), rank) if each)
    facts = {"Where": place, "Evidence": finding.get("evidence"), "Remedy": finding.get("remedy")}
    card = element("div", title, element("p", str(finding.get("message", ""))), _build_facts(facts), class_="card")
    source = str(finding.get("source") or "")
    if source.startswith("https://"):
        card.append(element("p", element("a", source, href=source, rel="noreferrer noopener")))
    return card


def _build_facts(facts: Mapping[str, Any]) -> Element:
    pairs = [(key, value) for key, value in facts.items() if value not in (None, "")]
    return element("dl", *(part for key, value in pairs for part in (element("dt", key), element("dd", str(value)))))


def _build_attempts(attempts: Sequence[Mapping[str, Any]]) -> Element:
    used = [key for key in ATTEMPT_COLUMNS if any(attempt.get(key) is not None for attempt in attempts)]
    rows = [[str(attempt[key]) if attempt.get(key) is not None else "" for key in used] for attempt in attempts]
    return _build_table([ATTEMPT_COLUMNS[key] for key in used], rows)


def _build_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> Element:
    kinds = ["number" if index in numbers else "text" for index in range(len(columns))]
    head = [element("th", name, scope="col", class_=kind) for name, kind in zip(columns, kinds, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", table, class_="scroll")


def _build_charts(run: Run) -> list[Element]:
    cards = [element("div", element("h3", title), chart, class_="card") for title, chart in draw_learning(run.steps)]
    return [element("div", *cards, class_="grid-of-cards")] if cards else [_empty("No metrics are recorded.")]


def _build_times(run: Run) -> list[Element]:
    chart = draw_times(run.steps)
    if chart is None:
        return []
    seconds = compute_throughput(run.steps).total_seconds or 0.0
    shares = compute_time_shares(run.steps)
    rows = [[phase, f"{100 * share:.1f} %", f"{share * seconds:.4g} s"] for phase, share in shares.items()]
    table = element("div", _build_table(["phase", "share", "all steps"], rows, (1, 2)), class_="card")
    return [element("div", element("div", chart, class_="card"), table, class_="halves")]


def _build_rollouts(rollouts: Sequence[Rollout]) -> list[Element]:
    if not rollouts:
        return []
    middle = (len(rollouts) + 1) // 2
    groups = {"Best": rollouts[:middle], "Worst": rollouts[middle:]}
    columns = [
        element("div", element("h3", title), *map(_build_rollout, group), class_="column")
        for title, group in groups.items()
        if group
    ]
    return [element("div", *columns, class_="halves")]


def _build_rollout(rollout: Rollout) -> Element:
    facts = {key.replace("_", " "): _to_text(rollout[key]) for key in ROLLOUT_FACTS if key in rollout}
    terms = rollout.get("rewards")
    if isinstance(terms, Mapping) and len(terms) > 1:
        facts["rewards"] = ", ".join(f"{name} {_to_text(value)}" for name, value in terms.items())
    texts = [
        part
        for key in ("prompt", "response")
        if key in rollout
        for part in (element("span", key, class_="muted"), element("pre", _to_text(rollout[key])))
    ]
    return element("div", _build_facts(facts), *texts, class_="card")


def _build_configuration(config: Mapping[str, Any]) -> Element:
    table = _build_table(["field", "value"], [list(each) for each in flatten(config)])
    return element("details", element("summary", "All fields"), table)


def _get_total(config: Mapping[str, Any]) -> int:
    training = config.get("training")
    total = training.get("totalSteps") if isinstance(training, Mapping) else None
    return total if isinstance(total, int) else 0


def _to_text(value: Any) -> str:
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "NaN" if value is None else str(value)
