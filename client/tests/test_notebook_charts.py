"""Charts of a notebook: round ticks, gaps at values that are not finite, and text that is no markup."""

from __future__ import annotations

from html import escape
from xml.etree.ElementTree import tostring

import pytest
from recorded_run import HOSTILE, STEPS

from rlt.notebook.chart import MAX_POINTS, choose_axis, draw_lines, thin
from rlt.notebook.charts import draw_learning
from rlt.notebook.markup import element


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
