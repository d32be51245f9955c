"""A report in a real browser: one file, opened from a disk.

- it shows each part, in light and dark, at 360 and 1440 pixels, and axe-core finds no serious violation;
- it requests nothing, and neither hostile text nor another script runs;
- without scripts it shows the summary.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from recorded_run import HOSTILE, build_hostile_run, build_run
from run_page import assert_accessible, open_page

from rlt.report.summary import Origin
from rlt.runs.run import Run
from rlt_ui.report import build_report

pytestmark = pytest.mark.slow
PARTS = ["Learning", "Time by phase", "Best and worst rollouts of step 40", "Attempts", "Resolved configuration"]
INJECT = """async () => {
  const script = document.createElement("script");
  script.textContent = "window.injected = true";
  document.body.append(script);
  const sent = await fetch("https://a.b/").then(() => "sent", () => "blocked");
  return [window.injected ?? false, sent];
}"""


def write_report(run: Run, folder: Path) -> str:
    """Write the report of a run. Returns its URL."""
    file = folder / "report.html"
    file.write_text(build_report(run, Origin("1.2.3", "2026-01-02T03:04:05Z")), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
def test_the_file_shows_each_part_and_is_accessible(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    url = write_report(build_run(), tmp_path)
    page, errors = open_page(browser, width=width, dark=dark)
    page.goto(url)
    expect(page.get_by_role("heading", level=2)).to_have_text(PARTS)
    expect(page.locator(".head")).to_contain_text("The Ray job is running.")
    expect(page.locator(".head")).to_contain_text("40 / 100")
    expect(page.locator(".head")).to_contain_text("trainer:1")
    expect(page.locator(".notes")).to_contain_text("No rollouts.")
    expect(page.locator(".finding")).to_contain_text("KlRunaway")
    expect(page.locator(".finding a")).to_have_attribute("href", "https://a.b")
    expect(page.locator(".tile").filter(has_text="Reward")).to_contain_text("1")
    expect(page.get_by_role("img", name="KL to the reference model in nats by step")).to_be_visible()
    expect(page.locator(".shares")).to_contain_text("gen 75 % 2 min 0 s")
    expect(page.locator("article").last).to_contain_text("4")
    expect(page.get_by_role("row", name="boom")).to_contain_text("gpu-7")
    expect(page.get_by_role("row", name="training.totalSteps")).to_contain_text("not the default")
    expect(page.get_by_text("Written by rlt 1.2.3 at 2026-01-02T03:04:05Z.")).to_be_visible()
    expect(page.get_by_role("link", name="Export as HTML")).to_have_count(0)
    page.get_by_label("Smoothing").fill("0.5")
    expect(page.locator(".u-legend").first).to_contain_text("mean (raw)")
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert errors == [url]  # the only request
    page.context.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(browser: Browser, tmp_path: Path, text: str) -> None:
    url = write_report(build_hostile_run(text), tmp_path)
    page, errors = open_page(browser)
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.goto(url)
    expect(page.get_by_role("heading", level=1)).to_have_text(text)
    for place in (".sentence", ".finding", ".notes", "article pre", ".shares", "td.path"):
        expect(page.locator(place).first).to_contain_text(text)
    assert page.locator("img, iframe, main script, [onload], [onerror]").count() == 0
    assert page.locator(".finding a").count() == 0
    assert errors == [url]
    page.context.close()


def test_another_script_does_not_run_and_a_request_is_blocked(browser: Browser, tmp_path: Path) -> None:
    page, _ = open_page(browser)
    page.goto(write_report(build_run(), tmp_path))
    expect(page.get_by_role("heading", level=1)).to_have_text("sum")
    assert page.evaluate(INJECT) == [False, "blocked"]
    page.context.close()


def test_without_scripts_the_file_shows_the_summary(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(write_report(build_run(), tmp_path))
    expect(page.locator("noscript pre")).to_contain_text("**Running**: The Ray job is running.")
    page.context.close()


def test_a_run_without_records_is_explained(browser: Browser, tmp_path: Path) -> None:
    empty = build_run(config={}, steps=[], rollouts=[], rollouts_step=None, findings=[], attempts=[])
    url = write_report(empty, tmp_path)
    page, errors = open_page(browser)
    page.goto(url)
    for text in ("No problems found.", "No metrics are recorded yet.", "The configuration is not recorded."):
        expect(page.get_by_text(text)).to_be_visible()
    assert errors == [url]
    page.context.close()
