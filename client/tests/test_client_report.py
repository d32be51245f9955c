"""Reports of runs.

- the page has each part of the run, and loads nothing;
- text of a run that looks like HTML or Markdown is text;
- secrets are masked;
- charts: round ticks, gaps at values that are not finite, columns that add up.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rlt.report.chart import MAX_COLUMNS, MAX_POINTS, choose_axis, draw_columns, draw_lines, thin
from rlt.report.charts import draw_learning, draw_times
from rlt.report.markdown import build_summary, escape
from rlt.report.page import build_page
from rlt.report.summary import Origin
from rlt.runs.run import Run, read_run

ORIGIN = Origin("1.2.3", "2026-01-02T03:04:05Z")
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=https://a.b/x onerror=alert(1)>',
    "</pre></style></title><svg/onload=alert(1)>",
    "<!-- <![CDATA[ &amp; &lt; ' javascript:alert(1)",
]
MEDIA = {"script", "img", "iframe", "link", "object", "embed", "video", "audio", "base", "form", "image", "use"}
STEPS: list[dict[str, float | None]] = [
    {
        "step": step,
        "critic/rewards/mean": step / 40,
        "reward/exact/mean": 0.5,
        "reward/length/mean": 0.25,
        "actor/kl_loss": None if step == 20 else 0.01 * step,
        "timing_s/gen": 3.0,
        "timing_s/update_actor": 1.0,
        "timing_s/step": 4.0,
        "perf/total_num_tokens": 400.0,
    }
    for step in range(1, 41)
]


class Reader(HTMLParser):
    """The tags, attributes and visible texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def build_run(**changes: Any) -> Run:
    run: dict[str, Any] = {
        "name": "sum",
        "source": "job demo/sum",
        "phase": "Running",
        "sentence": "The Ray job is running.",
        "config": {"training": {"totalSteps": 100, "learningRate": 1e-6}},
        "steps": STEPS,
        "rollouts": [
            {"prompt": "1+1=", "response": "2", "reward": 1.0},
            {"prompt": "1+2=", "response": "4", "reward": 0},
        ],
        "rollouts_step": 40,
        "findings": [
            {
                "code": "KlRunaway",
                "severity": "warning",
                "message": "m",
                "evidence": "e",
                "remedy": "r",
                "source": "https://a.b",
            }
        ],
        "attempts": [
            {"number": 1, "reason": "ProgramFailed", "message": "boom", "completionTime": "2026-01-01T00:00:00Z"}
        ],
        "notes": ("No rollouts.",),
        "details": {"image": "trainer:1"},
    }
    return Run(**{**run, **changes})


def test_the_page_has_every_part() -> None:
    page = Reader(build_page(build_run(), ORIGIN))
    text = "\n".join(page.texts)
    headings = [
        "Findings",
        "What is missing",
        "Attempts",
        "Learning",
        "Time of a step",
        "Rollouts of step 40",
        "Configuration",
    ]
    assert [each for each in headings if each not in page.texts] == []
    for part in (
        "The Ray job is running.",
        "step 40 of 100",
        "KlRunaway (warning)",
        "boom",
        "75.0 %",
        "1+2=",
        "trainer:1",
    ):
        assert part in text, part
    assert {"Reward", "Rewards by name", "KL divergence to the reference model"} <= set(page.texts)
    assert "Written by rlt 1.2.3 at 2026-01-02T03:04:05Z." in page.texts


def test_the_page_loads_nothing() -> None:
    page = build_page(build_run(), ORIGIN)
    found = Reader(page)
    assert not MEDIA & set(found.tags)
    assert [value for name, value in found.attributes if name in ("src", "href", "srcset")] == ["https://a.b"]
    assert "url(" not in page
    assert "@import" not in page
    assert (
        "content",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    ) in found.attributes


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(text: str) -> None:
    finding = dict.fromkeys(("code", "severity", "message", "evidence", "remedy", "source", "pod"), text)
    attempt = {"number": text, "reason": text, "message": text}
    rollout = {
        "prompt": text,
        "response": text,
        "ground_truth": text,
        "images": [text, "images/1f.png"],
        "reward": text,
        "rewards": {text: 1.0, "b": text},
    }
    steps = [
        {"step": step, f"reward/{text}/mean": 1.0, f"val-core/{text}/mean@1": 0.5, f"timing_s/{text}": 1.0}
        for step in (1, 2)
    ]
    hostile = build_run(
        name=text,
        source=text,
        phase=text,
        sentence=text,
        config={text: {text: [text, {text: text}]}},
        steps=steps,
        rollouts=[rollout, rollout],
        findings=[finding],
        attempts=[attempt],
        notes=(text,),
        details={text: text},
    )
    page = Reader(build_page(hostile, ORIGIN))
    harmless = Reader(build_page(build_run(), ORIGIN))
    assert set(page.tags) <= {*harmless.tags, "circle"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not [value for name, value in page.attributes if name == "href"]
    assert page.texts.count(text) >= 15
    assert f"{text}, images/1f.png" in page.texts


def test_characters_that_html_excludes_are_replaced() -> None:
    page = build_page(build_run(sentence="a\x00b\ud800c\x9b"), ORIGIN)
    assert "a\ufffdb\ufffdc\ufffd" in page
    page.encode()


def test_a_run_without_records_has_a_page() -> None:
    empty = build_run(config={}, steps=[], rollouts=[], rollouts_step=None, findings=[], attempts=[])
    text = Reader(build_page(empty, ORIGIN)).texts
    assert "No problems found." in text
    assert "No metrics are recorded." in text
    assert "No problems found." in build_summary(empty, ORIGIN)


def test_secrets_of_a_directory_are_masked(tmp_path: Path) -> None:
    config = {"job": "sum", "cluster": {"env": [{"name": "DB_PASSWORD", "value": "correct-horse"}]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts/step-1.jsonl").write_text('{"prompt": "correct-horse", "response": "x", "reward": 1}\n')
    run = read_run(tmp_path)
    for text in (build_page(run, ORIGIN), build_summary(run, ORIGIN)):
        assert "correct-horse" not in text
    assert "***" in build_page(run, ORIGIN)


def test_the_summary_is_markdown() -> None:
    lines = build_summary(build_run(), ORIGIN).splitlines()
    assert lines[0] == "## sum"
    assert "**Running**: The Ray job is running." in lines
    assert lines[lines.index("| --- | --- | --- | --- | --- |") + 1].startswith(
        "| reward | 0.025 | 0.8875 | 1 (step 40) | ▁"
    )
    assert "time of a step: gen 75 %, update\\_actor 25 %" in lines
    assert "- **KlRunaway**: m Evidence: e. r" in lines
    assert "| 1 | ProgramFailed |  |  | boom |" in lines
    assert "- Missing: No rollouts." in lines


@pytest.mark.parametrize("text", [*HOSTILE, "a | b\n| c", "[x](https://a.b) @user #12 `x` **b** ![i](u)"])
def test_hostile_text_in_the_summary_is_escaped(text: str) -> None:
    escaped = escape(text)
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)[<>|`*\[]", escaped)
    assert not re.search(r"[@#]\w", escaped)
    assert escape("x" * 1000).endswith("…")


def test_ticks_are_round_and_inside_of_the_axis() -> None:
    assert choose_axis([0.0, 1.0]).ticks == pytest.approx((0, 0.5, 1.0))
    assert choose_axis([0.013, 0.027]).ticks == pytest.approx((0.015, 0.02, 0.025))
    assert choose_axis([1, 160], 5, whole=True).ticks == (50, 100, 150)
    assert choose_axis([3, 3], whole=True).ticks == (2, 3, 4)
    assert choose_axis([-5e-9, -5e-9]).low < -5e-9 < choose_axis([-5e-9, -5e-9]).high


def test_a_value_that_is_not_finite_interrupts_the_line() -> None:
    chart = draw_lines({"a": [(step, None if step == 30 else 1.0 * step) for step in range(60)]}, "nats")
    assert chart is not None
    assert len(chart.findall(".//polyline")) == 2
    assert draw_lines({"a": [(1, None), (2, float("nan"))]}, "nats") is None
    assert "nats" in [each.text for each in chart.iter("text")]
    assert "step" in [each.text for each in chart.iter("text")]


def test_long_runs_are_averaged() -> None:
    points = thin([(step, 1.0) for step in range(10_000)])
    assert len(points) <= MAX_POINTS
    assert {value for _, value in points} == {1.0}


def test_columns_add_up() -> None:
    columns = [(step, {"gen": 3.0, "train": 1.0}) for step in range(1, 121)]
    boxes = draw_columns(columns, ["gen", "train"], "seconds").findall(".//rect")
    assert len(boxes) == 2 * MAX_COLUMNS
    gen, train = (float(box.attrib["height"]) for box in boxes[:2])
    assert gen == pytest.approx(3 * train, abs=0.1)
    assert float(boxes[0].attrib["y"]) == pytest.approx(float(boxes[1].attrib["y"]) + train, abs=0.1)


def test_metrics_that_the_run_lacks_have_no_chart() -> None:
    assert [title for title, _ in draw_learning(STEPS)] == [
        "Reward",
        "Rewards by name",
        "KL divergence to the reference model",
    ]
    assert draw_learning([]) == []
    assert draw_times([{"step": 1, "critic/rewards/mean": 1.0}]) is None
