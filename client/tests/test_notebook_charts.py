"""Charts of a notebook: ends of the axes, gaps at values that are not finite, and hostile text."""

from __future__ import annotations

from html import escape
from xml.etree.ElementTree import tostring

import pytest
from recorded_run import HOSTILE, STEPS

from rlt.notebook.chart import BOTTOM, LEFT, MAX_POINTS, RIGHT, TOP, draw_lines, thin
from rlt.notebook.charts import draw_learning
from rlt.notebook.markup import element


def test_a_chart_has_the_ends_of_its_axes_and_a_line_between_them() -> None:
    chart = draw_lines({"a": [(1, 0.25), (3, 0.75)]}, "nats")
    assert chart is not None
    assert [each.text for each in chart.iter("text")] == ["0.75", "nats", "0.25", "step 1", "3"]
    assert [each.attrib["points"] for each in chart.iter("polyline")] == [f"{LEFT}.0,{BOTTOM}.0 {RIGHT}.0,{TOP}.0"]


def test_a_value_without_neighbors_is_a_dot_in_the_middle() -> None:
    chart = draw_lines({"a": [(2, 1.0)]}, "")
    assert chart is not None
    assert [each.attrib["points"] for each in chart.iter("polyline")] == ["225.0,81.0 225.0,81.0"]


def test_a_value_that_is_not_finite_interrupts_the_line() -> None:
    chart = draw_lines({"a": [(step, None if step == 30 else 1.0 * step) for step in range(60)]}, "nats")
    assert chart is not None
    assert len(chart.findall(".//polyline")) == 2
    assert draw_lines({"a": [(1, None), (2, float("nan"))]}, "nats") is None


def test_long_runs_are_averaged() -> None:
    points = thin([(step, 1.0) for step in range(10_000)])
    assert len(points) <= MAX_POINTS
    assert {value for _, value in points} == {1.0}


def test_metrics_that_the_run_lacks_have_no_chart() -> None:
    assert [title for title, _ in draw_learning(STEPS)] == [
        "Reward",
        "Rewards by name",
        "KL divergence to the reference model",
    ]
    assert draw_learning([]) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escaped(text: str) -> None:
    assert tostring(element("p", text), "unicode", "html") == f"<p>{escape(text, quote=False)}</p>"


def test_characters_that_html_excludes_are_replaced() -> None:
    assert element("p", "a\x00b\ud800c\x9b").text == "a\ufffdb\ufffdc\ufffd"
