"""The page in a real browser, over a run directory that the trainer's own writers have made.

- each part shows the numbers of the run, in light and dark, at 360 and 1440 pixels, without an error on the console;
- hostile text is text;
- the tokens of responses are colored, logs are followed, and runs are compared;
- a run of 1,000 steps takes about the time of a short one;
- a new step appears, and a lost connection is shown and recovers;
- axe-core finds no serious violation.
"""

from __future__ import annotations

import json
import shutil

import pytest
from playwright.sync_api import Browser, Page, expect
from run_page import HOSTILE, STEPS, assert_accessible, open_page, serve, write_step

from rlt_trainer.telemetry.run_directory import RunDirectory

pytestmark = pytest.mark.slow
LONG = 1000
RUN = "#/run/sum-1"


def write_runs(run: RunDirectory) -> None:
    """Write eight runs next to another: one of 1,000 steps with its metrics in a cycle, and copies."""
    for number in range(2, 9):
        copy = run.path.parent / f"sum-{number}"
        shutil.copytree(run.path, copy)
        (copy / "config.json").write_text(json.dumps({"job": f"copy-{number}", "training": {"learningRate": number}}))
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    long = run.path.parent / "long"
    long.mkdir()
    (long / "config.json").write_text(json.dumps({"job": "long", "version": 1}))
    steps = [{**lines[step % STEPS], "step": step} for step in range(1, LONG + 1)]
    (long / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


def read_legend(page: Page, title: str) -> list[str]:
    """The labels of a plot's legend."""
    figure = page.locator("figure").filter(has=page.get_by_role("heading", name=title, exact=True))
    return figure.locator(".u-legend .u-label").all_inner_texts()


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
def test_each_part_shows_the_run_and_is_accessible(browser: Browser, run: RunDirectory, width: int, dark: bool) -> None:
    page, errors = open_page(browser, width=width, dark=dark)
    with serve(run.path.parent) as url:
        page.goto(url)
        expect(page.get_by_role("link", name="sum", exact=True)).to_be_visible()
        assert_accessible(page)
        assert "token" not in page.url
        page.get_by_role("link", name="sum", exact=True).click()
        expect(page.get_by_role("heading", name="sum", exact=True)).to_be_visible()
        expect(page.locator(".tile").filter(has_text="Reward")).to_contain_text("0.4688")
        expect(page.get_by_role("img", name="Entropy in nats by step")).to_be_visible()
        assert read_legend(page, "Reward") == ["step", "90 %", "10 %", "mean"]
        assert read_legend(page, "Response length") == ["step", "maximum", "minimum", "mean"]  # without quantiles
        assert_accessible(page)
        page.get_by_role("link", name="Metrics").click()
        expect(page.locator("main").get_by_role("status")).to_have_text("14 of 14 metrics")
        page.get_by_label("Search").fill("TIMING_S/gen")
        expect(page.locator(".chart:visible")).to_have_count(1)
        expect(page.get_by_role("img", name="timing_s/gen in gen by step")).to_be_visible()
        assert_accessible(page)
        page.get_by_role("link", name="Time").click()
        expect(page.locator(".shares").first).to_contain_text("gen 75 %")
        expect(page.locator(".shares li").first).to_have_attribute("title", "generation of the responses")
        expect(page.locator(".gantt rect")).to_have_count(4)
        expect(page.locator(".gantt")).to_contain_text("rank 0engine 0, thread 10")
        starts = page.locator(".gantt text").evaluate_all("(texts) => texts.map((text) => text.getBBox().x)")
        assert min(starts) >= 0, "a label is cut off"
        assert_accessible(page)
        page.get_by_role("link", name="Rollouts").click()
        expect(page.locator(".rollouts li")).to_have_count(2)
        expect(page.get_by_role("button", name="Compare group of 2")).to_have_count(2)
        page.get_by_label("One response for each prompt").uncheck()
        expect(page.locator(".rollouts li")).to_have_count(4)
        expect(page.locator(".rollouts li").first).to_contain_text(HOSTILE)
        expect(page.locator(".rollouts li").first).to_contain_text("advantage +1.5")
        expect(page.locator(".rollouts li").first).to_contain_text("finish reason length")
        expect(page.locator(".rollouts li").first).to_contain_text("image images/1f.png")
        expect(page.locator(".rollouts li").first).to_contain_text("failed: environment: sandbox lost")
        page.get_by_label("Order").select_option("highest advantage first")
        expect(page.locator(".rollouts li").first).to_contain_text("advantage +3.5")
        expect(page.locator(".rollouts li").last).to_contain_text("advantage \u2013")  # not recorded
        page.get_by_role("button", name="Compare group").first.click()
        expect(page.locator("dialog article")).to_have_count(2)
        expect(page.locator("dialog article").first).to_contain_text(f"[side request, not trained on]\n{HOSTILE}")
        page.get_by_text("Sandbox: 1 program, 1 file").first.click()
        opened = page.locator("dialog details[open]")
        expect(opened).to_contain_text(f"pod {HOSTILE}{HOSTILE}exit code 1{HOSTILE}{HOSTILE} (2 bytes)")
        page.get_by_label("Color tokens by").select_option("advantage")
        expect(page.locator(".token")).to_have_count(4)
        expect(page.locator(".token").first).to_have_text(HOSTILE)
        colors = page.evaluate("[...document.querySelectorAll('.token')].map((each) => each.style.background)")
        assert ["--series-2" in each for each in colors] == [True, False] * 2  # below and above 0
        assert_accessible(page)
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Logs").click()
        expect(page.locator(".log")).to_contain_text(f"{HOSTILE}\nstep 1")
        with (run.path / "attempts" / "1" / "program.log").open("a") as log:
            log.write("step 2\n")
        expect(page.locator(".log")).to_contain_text("step 2")
        assert_accessible(page)
        page.get_by_role("link", name="Config").click()
        expect(page.get_by_role("cell", name="training.learningRate")).to_be_visible()
        expect(page.get_by_role("row", name="training.learningRate")).to_contain_text("not the default 0.000001")
        page.get_by_label("Only fields that differ").check()
        expect(page.get_by_role("cell", name="training.totalSteps")).to_be_visible()
        expect(page.get_by_role("cell", name="version")).to_have_count(0)
        assert_accessible(page)
        with page.expect_download() as download:
            page.get_by_role("link", name="Export as HTML").click()
        report = download.value.path().read_text()
        assert "12 of 16 steps" in report
        assert HOSTILE not in report
        assert "\\u003cimg src=x" in report
        assert "hostile" not in page.title()
        assert page.locator("main img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        page.goto("about:blank")  # ends the events before the server
    assert errors == []
    page.context.close()


OPEN = """async (run) => {
  const start = performance.now();
  async function wait(isDone) {
    while (!isDone()) {
      if (performance.now() - start > 30000) throw new Error(`${run}: ${document.querySelector("main").textContent}`);
      await new Promise(requestAnimationFrame);
    }
    return performance.now() - start;
  }
  location.hash = `#/run/${run}`;
  const duration = await wait(() => document.querySelectorAll(".chart canvas").length >= 4);
  location.hash = "#/";
  await wait(() => document.querySelector(".runs"));
  return duration;
}"""
"""Opens a run and returns to the list. The result is the time until the plots are drawn, in milliseconds."""


def test_long_runs_are_drawn_as_fast_as_short_ones_and_compared(browser: Browser, run: RunDirectory) -> None:
    write_runs(run)
    page, errors = open_page(browser)
    with serve(run.path.parent) as url:
        page.goto(url)
        expect(page.get_by_role("link", name="long", exact=True)).to_be_visible()
        times = {name: min(page.evaluate(OPEN, name) for _ in range(3)) for name in ("sum-1", "long")}
        print("milliseconds", times)
        assert times["long"] < 5 * times["sum-1"]
        for name in ("sum", "long", *(f"copy-{number}" for number in range(2, 8))):
            page.get_by_label(f"Compare {name}", exact=True).check()
        expect(page.get_by_label("Compare copy-8")).to_be_disabled()
        page.get_by_role("link", name="Compare 8 runs").click()
        expect(page.get_by_role("row", name="training.learningRate")).to_contain_text("0.0003")
        expect(page.get_by_role("row", name="entropy, final")).to_contain_text("0.3206")
        for name in ("sum", "long", *(f"copy-{number}" for number in range(2, 8))):
            expect(page.locator(".u-legend").first).to_contain_text(name)
        assert_accessible(page)
        page.goto("about:blank")
    assert errors == []
    page.context.close()


def test_a_new_step_appears_and_a_lost_connection_recovers(browser: Browser, run: RunDirectory) -> None:
    page, _ = open_page(browser)
    reward = page.locator(".tile").filter(has_text="Reward")
    live = page.locator("#live")
    with serve(run.path.parent) as url:
        page.goto(url + RUN)
        expect(live).to_have_text("Live")
        expect(reward).to_contain_text("0.4688")
        write_step(run, STEPS + 1)
        expect(reward).to_contain_text("0.5313")
    expect(live).to_contain_text("Connection lost")
    expect(reward).to_contain_text("0.5313")
    write_step(run, STEPS + 2)
    with serve(run.path.parent, int(url.split(":")[2].split("/")[0])):
        expect(live).to_have_text("Live", timeout=20_000)
        expect(reward).to_contain_text("0.5938")
        page.goto("about:blank")
    page.context.close()
